import ExecuTorch

/// Runs a .pte: an image, float32 [1, 3, 224, 224], to the scores of 1000 classes.
///
/// A module is not thread-safe: use one classifier per thread.
public final class Classifier {
  private let module: Module

  /// Loads the program; for one in an app, `Bundle.main.path(forResource: "model", ofType: "pte")`.
  public init(path: String) throws {
    module = Module(filePath: path, loadMode: .mmap)
    try module.load("forward")
  }

  /// The sizes of the input, as the file states them.
  public func shape() throws -> [Int] {
    let metadata: MethodMetadata = try module.methodMetadata("forward")
    return metadata.inputTensorMetadata[0]?.shape ?? []
  }

  /// Returns a score per class.
  public func scores(_ image: [Float]) throws -> [Float] {
    let input: Tensor<Float> = Tensor<Float>(image, shape: try shape())
    let output: Tensor<Float> = try Tensor<Float>(module.forward(input))
    return output.scalars()
  }
}
