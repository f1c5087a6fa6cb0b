// The part of the function that XLA calls that is the same for all backends. Included before cpu.h and cuda.h define their types.
#include "xla/ffi/api/c_api.h"

// Answer the question for the version of the interface, which XLA asks once; return whether it was this question.
static bool answers_metadata(XLA_FFI_CallFrame* frame) {
  auto* extension = frame->extension_start;  // Its type has another name in newer releases of JAX.
  if (extension == NULL || extension->type != XLA_FFI_Extension_Metadata) return false;
  XLA_FFI_Metadata* metadata = ((XLA_FFI_Metadata_Extension*)extension)->metadata;
  metadata->api_version.major_version = XLA_FFI_API_MAJOR;
  metadata->api_version.minor_version = XLA_FFI_API_MINOR;
  return true;
}
