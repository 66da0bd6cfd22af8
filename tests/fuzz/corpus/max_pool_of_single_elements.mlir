builtin.module attributes {stepwell.level = "aten"} {
  func.func @forward(%a: tensor<1x3x5x4xf32>) -> tensor<1x3x3x2xf32> attributes {stepwell.inputs = [{name = "a_0"}], stepwell.outputs = [{name = "max_pool2d"}], stepwell.in_spec = "((*), {})", stepwell.out_spec = "*"} {
    %relu = aten.relu.default(%a) : (tensor<1x3x5x4xf32>) -> tensor<1x3x5x4xf32>
    %max_pool2d = aten.max_pool2d.default(%relu, [1, 1], [2, 2]) : (tensor<1x3x5x4xf32>) -> tensor<1x3x3x2xf32>
    func.return %max_pool2d : tensor<1x3x3x2xf32>
  }
}
