// The function that XLA calls: it starts one thread per world on XLA's stream. Included after the body `rollout` of a kernel.

static XLA_FFI_Error* failure(const XLA_FFI_CallFrame* frame, cudaError_t code) {
  XLA_FFI_Error_Create_Args error = {XLA_FFI_Error_Create_Args_STRUCT_SIZE, NULL, cudaGetErrorString(code), XLA_FFI_Error_Code_INTERNAL};
  return frame->api->XLA_FFI_Error_Create(&error);
}

// Return the threads of a block: BLOCK, or 32 as long as every scheduler of the GPU gets at most one warp.
static cudaError_t threads_of_block(long worlds, long* threads) {
  int device = 0, processors = 0;
  cudaError_t code = cudaGetDevice(&device);
  if (code == cudaSuccess) code = cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
  *threads = worlds <= 4L * 32 * processors ? 32 : BLOCK;
  return code;
}

extern "C" XLA_FFI_Error* call(XLA_FFI_CallFrame* frame) {
  if (answers_metadata(frame)) return NULL;
  Pointers pointers;
  for (int k = 0; k < INPUTS; ++k) pointers.in[k] = ((XLA_FFI_Buffer*)frame->args.args[k])->data;
  for (int k = 0; k < OUTPUTS; ++k) pointers.out[k] = ((XLA_FFI_Buffer*)frame->rets.rets[k])->data;
  R* memory = TEMPORARIES ? (R*)((XLA_FFI_Buffer*)frame->rets.rets[OUTPUTS])->data : NULL;
  long worlds = ((XLA_FFI_Buffer*)frame->rets.rets[0])->dims[0], threads = 0;
  if (worlds == 0) return NULL;
  XLA_FFI_Stream_Get_Args stream = {XLA_FFI_Stream_Get_Args_STRUCT_SIZE, NULL, frame->ctx, NULL};
  XLA_FFI_Error* error = frame->api->XLA_FFI_Stream_Get(&stream);
  if (error != NULL) return error;
  cudaError_t code = threads_of_block(worlds, &threads);
  void* arguments[] = {&pointers, &worlds, &memory};
  const dim3 blocks((worlds + threads - 1) / threads), block(threads);
  if (code == cudaSuccess) code = cudaLaunchKernel(rollout, blocks, block, arguments, 0, (cudaStream_t)stream.stream);
  return code == cudaSuccess ? NULL : failure(frame, code);
}
