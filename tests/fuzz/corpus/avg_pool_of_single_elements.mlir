builtin.module attributes {stepwell.level = "aten"} {
  func.func @forward(%a: tensor<1x3x5x4xf32>) -> tensor<1x3x5x4xf32> attributes {stepwell.inputs = [{name = "a_0"}], stepwell.outputs = [{name = "avg_pool2d"}], stepwell.in_spec = "((*), {})", stepwell.out_spec = "*"} {
    %relu = aten.relu.default(%a) : (tensor<1x3x5x4xf32>) -> tensor<1x3x5x4xf32>
    %avg_pool2d = aten.avg_pool2d.default(%relu, [1, 1]) : (tensor<1x3x5x4xf32>) -> tensor<1x3x5x4xf32>
    func.return %avg_pool2d : tensor<1x3x5x4xf32>
  }
}
