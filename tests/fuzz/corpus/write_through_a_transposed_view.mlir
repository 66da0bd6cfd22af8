builtin.module attributes {stepwell.level = "aten"} {
  func.func @forward(%a: tensor<3x4xf32>) -> tensor<3x4xf32> attributes {stepwell.inputs = [{name = "a_0"}], stepwell.outputs = [{name = "add"}], stepwell.in_spec = "((*), {})", stepwell.out_spec = "*"} {
    %mul = aten.mul.Scalar(%a, 1.0) {"aten.written_as" = "Tensor"} : (tensor<3x4xf32>) -> tensor<3x4xf32>
    %t = aten.t.default(%mul) : (tensor<3x4xf32>) -> tensor<4x3xf32>
    %cos = aten.cos.default(%a) : (tensor<3x4xf32>) -> tensor<3x4xf32>
    %t_1 = aten.t.default(%cos) : (tensor<3x4xf32>) -> tensor<4x3xf32>
    %copy = aten.copy.default(%t, %t_1) : (tensor<4x3xf32>, tensor<4x3xf32>) -> tensor<4x3xf32>
    %t_2 = aten.t.default(%copy) : (tensor<4x3xf32>) -> tensor<3x4xf32>
    %add = aten.add.Scalar(%t_2, 1.0) {"aten.written_as" = "Tensor"} : (tensor<3x4xf32>) -> tensor<3x4xf32>
    func.return %add : tensor<3x4xf32>
  }
}
