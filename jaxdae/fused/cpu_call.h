// The function that XLA calls: it divides the worlds among threads. Included after the body `rollout` of a kernel.

struct Share { void* const* in; void* const* out; long first, last, worlds; };

static void* run_share(void* given) {
  const Share* share = (const Share*)given;
  void* memory = NULL;
  if (posix_memalign(&memory, 64, sizeof(F) * (size_t)TEMPORARIES)) return given;
  fenv_t before;  // The same treatment of subnormal numbers in every thread.
  fegetenv(&before);
  fesetenv(FE_DFL_ENV);
  for (long start = share->first; start < share->last; start += LANES) {
    long world[LANES], count = share->worlds - start;
    for (int k = 0; k < LANES; ++k) world[k] = start + (k < count ? k : count - 1);
    rollout(share->in, share->out, world, count < LANES ? count : LANES, (R*)memory);
  }
  fesetenv(&before);
  free(memory);
  return NULL;
}

static long processors() {
  long found = sysconf(_SC_NPROCESSORS_ONLN);
#ifdef __linux__
  cpu_set_t set;
  if (!sched_getaffinity(0, sizeof(set), &set)) found = CPU_COUNT(&set);
#endif
  const char* named = getenv("JAXDAE_KERNEL_THREADS");
  const long most = named == NULL ? 0 : atol(named);
  if (most > 0 && most < found) found = most;
  return found < 1 ? 1 : found;
}

extern "C" XLA_FFI_Error* call(XLA_FFI_CallFrame* frame) {
  if (answers_metadata(frame)) return NULL;
  enum { MOST = 64 };
  void *in[INPUTS + 1], *out[OUTPUTS + 1];
  for (int k = 0; k < INPUTS; ++k) in[k] = ((XLA_FFI_Buffer*)frame->args.args[k])->data;
  for (int k = 0; k < OUTPUTS; ++k) out[k] = ((XLA_FFI_Buffer*)frame->rets.rets[k])->data;
  const long worlds = ((XLA_FFI_Buffer*)frame->rets.rets[0])->dims[0];
  const long groups = (worlds + LANES - 1) / LANES;
  long threads = processors();
  if (threads > MOST) threads = MOST;
  if (threads > groups) threads = groups;
  Share shares[MOST];
  pthread_t running[MOST];
  bool started[MOST];
  bool failed = false;
  for (long k = 0; k < threads; ++k) {
    const long first = groups * k / threads * LANES, last = groups * (k + 1) / threads * LANES;
    shares[k] = Share{in, out, first, last < worlds ? last : worlds, worlds};
    started[k] = k > 0 && !pthread_create(&running[k], NULL, run_share, &shares[k]);
  }
  for (long k = 0; k < threads; ++k)
    if (!started[k]) failed |= run_share(&shares[k]) != NULL;
  for (long k = 0; k < threads; ++k) {
    void* result = NULL;
    if (started[k]) { pthread_join(running[k], &result); failed |= result != NULL; }
  }
  if (!failed) return NULL;
  XLA_FFI_Error_Create_Args error = {XLA_FFI_Error_Create_Args_STRUCT_SIZE, NULL, "jaxdae: out of memory in a fused kernel", XLA_FFI_Error_Code_RESOURCE_EXHAUSTED};
  return frame->api->XLA_FFI_Error_Create(&error);
}
