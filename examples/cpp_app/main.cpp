// Runs a .pte on the numbers of standard input: app model.pte < input > output
#include <cstdio>
#include <vector>

#include <executorch/extension/module/module.h>
#include <executorch/extension/tensor/tensor.h>

using executorch::extension::Module;
using executorch::extension::from_blob;

int main(int count, char **arguments) {
  if (count != 2) {
    std::fprintf(stderr, "app model.pte < input > output\n");
    return 2;
  }
  Module module(arguments[1]);
  const auto meta = module.method_meta("forward");
  if (!meta.ok()) {
    std::fprintf(stderr, "%s has no method forward\n", arguments[1]);
    return 1;
  }
  std::vector<executorch::runtime::EValue> inputs;
  std::vector<std::vector<char>> held(meta->num_inputs());
  std::vector<executorch::extension::TensorPtr> tensors;
  for (size_t at = 0; at < meta->num_inputs(); ++at) {
    const auto port = meta->input_tensor_meta(at);
    held[at].resize(port->nbytes());
    if (std::fread(held[at].data(), 1, port->nbytes(), stdin) != port->nbytes()) {
      std::fprintf(stderr, "input %zu takes %zu bytes\n", at, port->nbytes());
      return 1;
    }
    tensors.push_back(from_blob(
        held[at].data(), {port->sizes().begin(), port->sizes().end()}, port->scalar_type()));
    inputs.push_back(*tensors.back());
  }
  const auto outputs = module.forward(inputs);
  if (!outputs.ok()) {
    std::fprintf(stderr, "error %d\n", static_cast<int>(outputs.error()));
    return 1;
  }
  for (const auto &output : *outputs) {
    const auto tensor = output.toTensor();
    std::fwrite(tensor.const_data_ptr(), 1, tensor.nbytes(), stdout);
  }
  return 0;
}
