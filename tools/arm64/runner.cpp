// Runs the methods of a .pte as they are asked for: on a device, or on a core that is emulated.
//
//     runner [--data FILE.ptd]... [--library FILE.so]... MODEL.pte < CALLS > ANSWERS
//     runner [--library FILE.so]... --serve [MODEL.pte] < REQUESTS > PROCESSES
//     runner                       says which protocol it speaks
//
// Serving, it stays, and each program runs in a fork of it: nothing is loaded and translated twice,
// least of all what running MODEL.pte takes, which it does first.
//
//     request  u8 1: text calls, text answers, text errors (paths), u32 count, text argument...
//              u8 2: u32 process
//     answer   u32 process;  i32 how it ended, as waitpid says
//
// Everything is little-endian. The first answer says whether the program was loaded; one more
// follows each call. backends/executorch/running/arm64.py is the other side.
//
//     call    u32 repeats (0: run once, unmeasured), text method, u32 count, value...,
//             u32 count, u32 place of an input that the method writes...
//     answer  u32 0, u32 count, value..., u32 count, u64 nanoseconds..., value written...
//             u32 error code of ExecuTorch, text what happened
//     text    u32 length, bytes
//     value   u8 kind: 0 none; 1 tensor: u8 scalar type, u8 rank, u32 sizes..., u8 dim order...,
//             u64 length, bytes in memory order; 2 i64; 3 f64; 4 u8 bool; 5 text
//
// Before and after each measured run the runner asks for the priority of a process of an unknown
// kind, which does nothing: the marks between which count.c counts instructions.

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <executorch/extension/module/module.h>
#include <executorch/extension/tensor/tensor.h>
#include <executorch/runtime/core/hierarchical_allocator.h>

namespace executorch::extension::threadpool {
class ThreadPool {  // The wheel has no header of it.
 public:
  bool _unsafe_reset_threadpool(uint32_t threads);
};
ThreadPool* get_threadpool();
}  // namespace executorch::extension::threadpool

namespace {

using executorch::aten::ScalarType;
using executorch::aten::Tensor;
using executorch::extension::Module;
using executorch::extension::TensorPtr;
using executorch::runtime::Error;
using executorch::runtime::EValue;
using executorch::runtime::HierarchicalAllocator;
using executorch::runtime::Span;

enum Kind : uint8_t { NONE, TENSOR, INT, DOUBLE, BOOL, TEXT };
constexpr int MARK = 0x53570;

void read_bytes(void* to, size_t count) {
  if (count != 0 && std::fread(to, 1, count, stdin) != count) {
    std::fprintf(stderr, "runner: the calls end within one\n");
    std::exit(2);
  }
}

template <typename T>
T read() {
  T value;
  read_bytes(&value, sizeof value);
  return value;
}

std::string read_text() {
  std::string text(read<uint32_t>(), '\0');
  read_bytes(text.data(), text.size());
  return text;
}

template <typename T>
void write(T value) {
  std::fwrite(&value, sizeof value, 1, stdout);
}

void write_text(const std::string& text) {
  write<uint32_t>(text.size());
  std::fwrite(text.data(), 1, text.size(), stdout);
}

void refuse(Error error, const std::string& what) {
  write<uint32_t>(static_cast<uint32_t>(error));
  write_text(what + ": " + executorch::runtime::to_string(error));
}

// What a value's bytes live in until the next call.
struct Inputs {
  std::vector<EValue> values;
  std::vector<TensorPtr> tensors;
  std::vector<std::unique_ptr<char[]>> bytes;

  void add() {
    switch (read<uint8_t>()) {
      case TENSOR:
        return add_tensor();
      case INT:
        return values.emplace_back(read<int64_t>()), void();
      case DOUBLE:
        return values.emplace_back(read<double>()), void();
      case BOOL:
        return values.emplace_back(read<uint8_t>() != 0), void();
      default:
        return values.emplace_back(), void();
    }
  }

  void add_tensor() {
    const auto type = static_cast<ScalarType>(read<uint8_t>());
    const size_t rank = read<uint8_t>();
    std::vector<executorch::aten::SizesType> sizes(rank);
    for (auto& size : sizes) size = read<uint32_t>();
    std::vector<executorch::aten::DimOrderType> order(rank);
    read_bytes(order.data(), rank);
    const auto length = read<uint64_t>();
    read_bytes(add_zeros(std::move(sizes), std::move(order), type, length), length);
  }

  char* add_zeros(std::vector<executorch::aten::SizesType> sizes,
                  std::vector<executorch::aten::DimOrderType> order, ScalarType type,
                  size_t length) {
    bytes.emplace_back(new char[length + 64]());  // Kernels may read past the end.
    tensors.push_back(executorch::extension::make_tensor_ptr(
        std::move(sizes), bytes.back().get(), std::move(order), {}, type));
    values.emplace_back(*tensors.back());
    return bytes.back().get();
  }
};

void write_value(const EValue& value) {
  if (value.isTensor()) {
    const Tensor& tensor = value.toTensor();
    write<uint8_t>(TENSOR);
    write<uint8_t>(static_cast<uint8_t>(tensor.scalar_type()));
    write<uint8_t>(tensor.dim());
    for (const auto size : tensor.sizes()) write<uint32_t>(size);
    for (const auto axis : tensor.dim_order()) write<uint8_t>(axis);
    write<uint64_t>(tensor.nbytes());
    std::fwrite(tensor.const_data_ptr(), 1, tensor.nbytes(), stdout);
  } else if (value.isInt()) {
    write<uint8_t>(INT);
    write<int64_t>(value.toInt());
  } else if (value.isDouble()) {
    write<uint8_t>(DOUBLE);
    write<double>(value.toDouble());
  } else if (value.isBool()) {
    write<uint8_t>(BOOL);
    write<uint8_t>(value.toBool());
  } else if (value.isString()) {
    write<uint8_t>(TEXT);
    write_text(std::string(value.toString().data(), value.toString().size()));
  } else {
    write<uint8_t>(NONE);
  }
}

// A program whose methods share their planned memory, and so their state, as in Python's runtime.
class Program {
 public:
  Program(const std::string& path, std::vector<std::string> data)
      : module_(path, std::move(data)) {}

  Error load(std::string& what) {
    what = "the program cannot be loaded";
    if (const Error error = module_.load(); error != Error::Ok) return error;
    const auto program = module_.program();
    std::vector<size_t> sizes;
    for (size_t i = 0; i < program->num_methods(); ++i) {
      const auto meta = program->method_meta(*program->get_method_name(i));
      if (!meta.ok()) return meta.error();
      if (sizes.size() < meta->num_memory_planned_buffers())
        sizes.resize(meta->num_memory_planned_buffers());
      for (size_t j = 0; j < meta->num_memory_planned_buffers(); ++j)
        sizes[j] = std::max<size_t>(sizes[j], meta->memory_planned_buffer_size(j).get());
    }
    for (const size_t size : sizes) {
      memory_.emplace_back(static_cast<uint8_t*>(std::aligned_alloc(64, (size / 64 + 2) * 64)));
      std::memset(memory_.back(), 0, size);
      spans_.emplace_back(memory_.back(), size);
    }
    for (size_t i = 0; i < program->num_methods(); ++i) {
      const std::string name = *program->get_method_name(i);
      what = "method " + name + " cannot be loaded";
      const auto meta = program->method_meta(name.c_str());
      planned_.push_back(std::make_unique<HierarchicalAllocator>(
          Span<Span<uint8_t>>(spans_.data(), meta->num_memory_planned_buffers())));
      if (const Error error = module_.load_method(name, planned_.back().get()); error != Error::Ok)
        return error;
    }
    return Error::Ok;
  }

  void run_on_zeros() {
    Inputs inputs;
    if (add_zeros(inputs, "forward")) (void)module_.execute("forward", inputs.values);
  }

  // Nanoseconds of a call of each method, on zeros: the least of many rounds or of a second, in
  // which they take turns, each for a fifth of a millisecond at a time.
  std::map<std::string, double> time_methods() {
    std::map<std::string, Inputs> inputs;
    std::map<std::string, double> best;
    const auto program = module_.program();
    for (size_t i = 0; i < program->num_methods(); ++i) {
      const std::string name = *program->get_method_name(i);
      if (!add_zeros(inputs[name], name) || !module_.execute(name, inputs[name].values).ok())
        return {};
      best[name] = time_calls(name, inputs[name], 1);
    }
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(1);
    for (int round = 0; round < 40 && std::chrono::steady_clock::now() < until; ++round)
      for (auto& [name, least] : best)
        least = std::min(least, time_calls(name, inputs[name], std::max(1., 2e5 / least)));
    return best;
  }

  void answer_call(uint32_t repeats) {
    const std::string method = read_text();
    Inputs inputs;
    for (auto count = read<uint32_t>(); count > 0; --count) inputs.add();
    std::vector<uint32_t> written(read<uint32_t>());
    for (auto& place : written) place = read<uint32_t>();
    std::vector<uint64_t> times;
    std::vector<EValue> outputs;
    for (uint32_t run = 0; run < std::max(repeats, 1u); ++run) {
      if (repeats != 0) getpriority(static_cast<__priority_which>(MARK), 1);
      const auto start = std::chrono::steady_clock::now();
      auto done = module_.execute(method, inputs.values);
      const auto end = std::chrono::steady_clock::now();
      if (repeats != 0) getpriority(static_cast<__priority_which>(MARK), 0);
      if (!done.ok()) return refuse(done.error(), "method " + method);
      outputs = std::move(*done);
      if (repeats != 0) times.push_back(std::chrono::nanoseconds(end - start).count());
    }
    write<uint32_t>(0);
    write<uint32_t>(outputs.size());
    for (const auto& value : outputs) write_value(value);
    write<uint32_t>(times.size());
    for (const auto time : times) write<uint64_t>(time);
    for (const auto place : written) write_value(inputs.values.at(place));
  }

 private:
  bool add_zeros(Inputs& inputs, const std::string& method) {
    const auto meta = module_.method_meta(method);
    if (!meta.ok()) return false;
    for (size_t i = 0; i < meta->num_inputs(); ++i) {
      const auto tensor = meta->input_tensor_meta(i);
      if (!tensor.ok()) return false;
      inputs.add_zeros({tensor->sizes().begin(), tensor->sizes().end()},
                       {tensor->dim_order().begin(), tensor->dim_order().end()},
                       tensor->scalar_type(), tensor->nbytes());
    }
    return true;
  }

  double time_calls(const std::string& method, Inputs& inputs, int calls) {
    const auto start = std::chrono::steady_clock::now();
    for (int call = 0; call < calls; ++call) (void)module_.execute(method, inputs.values);
    return std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - start)
               .count() / calls;
  }

  std::vector<uint8_t*> memory_;
  std::vector<Span<uint8_t>> spans_;
  std::vector<std::unique_ptr<HierarchicalAllocator>> planned_;
  Module module_;
};

int run(const std::vector<std::string>& arguments) {
  std::vector<std::string> data;
  std::string path;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i] == "--data" && i + 1 < arguments.size()) {
      data.emplace_back(arguments[++i]);
    } else {
      path = arguments[i];
    }
  }
  Program program(path, std::move(data));
  std::string what;
  if (const Error error = program.load(what); error != Error::Ok) {
    refuse(error, what);
    return 1;
  }
  write<uint32_t>(0);
  std::fflush(stdout);
  for (uint32_t repeats; std::fread(&repeats, sizeof repeats, 1, stdin) == 1;) {
    program.answer_call(repeats);
    std::fflush(stdout);
  }
  return 0;
}

// A process for each program that is asked for, until the requests end.
int serve(const std::vector<std::string>& first) {
  for (const auto& path : first) {
    Program program(path, {});
    std::string what;
    if (program.load(what) == Error::Ok) program.run_on_zeros();
  }
  std::map<pid_t, int> ended;
  for (uint8_t kind; std::fread(&kind, 1, 1, stdin) == 1; std::fflush(stdout)) {
    int status = 0;
    if (kind == 2) {
      const auto process = static_cast<pid_t>(read<uint32_t>());
      if (ended.count(process) == 0) waitpid(process, &ended[process], 0);
      write<int32_t>(ended[process]);
      continue;
    }
    for (pid_t done; (done = waitpid(-1, &status, WNOHANG)) > 0;) ended[done] = status;
    const int pipes[] = {open(read_text().c_str(), O_RDONLY), open(read_text().c_str(), O_WRONLY),
                         open(read_text().c_str(), O_WRONLY | O_APPEND)};
    std::vector<std::string> arguments(read<uint32_t>());
    for (auto& argument : arguments) argument = read_text();
    const pid_t process = fork();
    if (process == 0) {
      for (int to = 0; to < 3; ++to) dup2(pipes[to], to);
      for (const int from : pipes) close(from);
      const int code = run(arguments);
      std::fflush(stdout);
      _exit(code);
    }
    for (const int from : pipes) close(from);
    write<uint32_t>(process);
  }
  return 0;
}

// The kinds of core that the system names, as Arm numbers them: 0xd0b is a Cortex-A76.
std::string cores() {
  std::ifstream info("/proc/cpuinfo");
  std::set<std::string> parts;
  for (std::string line; std::getline(info, line);)
    if (line.rfind("CPU part", 0) == 0) parts.insert(line.substr(line.find(':') + 1));
  std::string text = "Arm cores";
  for (const auto& part : parts) text += part;
  return text;
}

// The programs' methods timed, as JSON: what `bench/costs.py --times` reads.
int time_programs(const std::vector<std::string>& paths) {
  std::printf("{\n \"machine\": \"%s\",\n \"programs\": {", cores().c_str());
  for (const auto& path : paths) {
    Program program(path, {});
    std::string what;
    const bool loaded = program.load(what) == Error::Ok;
    std::printf("%s\n  \"%s\": {", &path == &paths.front() ? "" : ",", path.c_str());
    const char* between = "";
    const auto times = loaded ? program.time_methods() : std::map<std::string, double>();
    for (const auto& [name, least] : times) {
      std::printf("%s\"%s\": %.1f", between, name.c_str(), least);
      between = ", ";
    }
    std::printf("}");
    std::fflush(stdout);
  }
  std::printf("\n }\n}\n");
  return 0;
}

}  // namespace

int main(int count, char** given) {
  std::vector<std::string> arguments;
  bool serving = false, timing = false;
  for (int i = 1; i < count; ++i) {
    const std::string argument = given[i];
    if (argument == "--library" && i + 1 < count) {
      if (dlopen(given[++i], RTLD_NOW | RTLD_GLOBAL) == nullptr) {
        refuse(Error::NotFound, dlerror());
        return 1;
      }
    } else if (argument == "--serve") {
      serving = true;
    } else if (argument == "--time") {
      timing = true;
    } else {
      arguments.push_back(argument);
    }
  }
  if (arguments.empty() && !serving) {
    std::printf("stepwell runner, protocol 2\n");
    return 0;
  }
  executorch::extension::threadpool::get_threadpool()->_unsafe_reset_threadpool(1);
  return timing ? time_programs(arguments) : serving ? serve(arguments) : run(arguments);
}
