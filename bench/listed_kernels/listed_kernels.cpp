// Leaves those kernels and backends out of ExecuTorch's registry that LISTED does not name:
//     LISTED="aten::topk.values XnnpackBackend" LD_PRELOAD=liblisted_kernels.so app model.pte
// The libraries of kernels call `register_kernels` as they are loaded; the dynamic linker finds this
// one first, and it hands the listed kernels to the runtime's own.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <string>

#include <executorch/runtime/backend/interface.h>
#include <executorch/runtime/kernel/operator_registry.h>

namespace {
bool is_listed(const char *name) {
  const char *listed = std::getenv("LISTED");
  const std::string names = std::string(" ") + (listed ? listed : "") + " ";
  return names.find(std::string(" ") + name + " ") != std::string::npos;
}

template <class Function> Function next(const char *symbol) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, symbol));
}
} // namespace

namespace executorch {
namespace ET_RUNTIME_NAMESPACE {
Error register_kernels(const Span<const Kernel> kernels) {
  static const auto own = next<Error (*)(const Span<const Kernel>)>(
      "_ZN10executorch7runtime16register_kernelsENS0_4SpanIKNS0_6KernelEEE");
  for (const Kernel &kernel : kernels) {
    if (is_listed(kernel.name_)) {
      const Error error = own({&kernel, 1});
      if (error != Error::Ok) {
        return error;
      }
    }
  }
  return Error::Ok;
}

Error register_backend(const Backend &backend) {
  static const auto own = next<Error (*)(const Backend &)>(
      "_ZN10executorch7runtime16register_backendERKNS0_7BackendE");
  return is_listed(backend.name) ? own(backend) : Error::Ok;
}
} // namespace ET_RUNTIME_NAMESPACE
} // namespace executorch
