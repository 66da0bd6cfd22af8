import Classifier

guard CommandLine.arguments.count == 2 else {
  fatalError("classify model.pte")
}
let classifier = try Classifier(path: CommandLine.arguments[1])
let count = try classifier.shape().reduce(1, *)
let scores = try classifier.scores([Float](repeating: 0, count: count))
print("class \(scores.indices.max { scores[$0] < scores[$1] } ?? -1) of \(scores.count)")
