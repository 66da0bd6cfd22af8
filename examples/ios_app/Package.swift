// swift-tools-version:5.9
import PackageDescription

let package = Package(
  name: "Classifier",
  platforms: [.iOS(.v17), .macOS(.v12)],
  products: [
    .library(name: "Classifier", targets: ["Classifier"])
  ],
  dependencies: [
    // The branch of a release; `stepwell explain model.pte --deploy` states the oldest that will do.
    .package(url: "https://github.com/pytorch/executorch.git", branch: "swiftpm-1.5.0")
  ],
  targets: [
    .target(
      name: "Classifier",
      dependencies: [
        .product(name: "executorch", package: "executorch"),
        .product(name: "backend_xnnpack", package: "executorch"),
        .product(name: "kernels_optimized", package: "executorch"),
      ],
      // Kernels and backends register themselves when they are loaded: nothing calls them.
      linkerSettings: [.unsafeFlags(["-Wl,-all_load"])]
    ),
    // `swift run classify model.pte`, on a Mac.
    .executableTarget(name: "classify", dependencies: ["Classifier"]),
  ]
)
