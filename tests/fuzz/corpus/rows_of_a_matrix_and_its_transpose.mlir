builtin.module attributes {stepwell.level = "aten"} {
  func.func @forward(%a: tensor<?x3xf32, #stepwell.shape<["s10", 3]>>) -> tensor<?x3xf32, #stepwell.shape<["s10", 3]>> attributes {stepwell.inputs = [{name = "a_0"}], stepwell.outputs = [{name = "matmul_1"}], stepwell.in_spec = "((*), {})", stepwell.out_spec = "*", stepwell.ranges = ["1 <= s10 <= 12"]} {
    %tanh = aten.tanh.default(%a) : (tensor<?x3xf32, #stepwell.shape<["s10", 3]>>) -> tensor<?x3xf32, #stepwell.shape<["s10", 3]>>
    %tanh_1 = aten.tanh.default(%a) : (tensor<?x3xf32, #stepwell.shape<["s10", 3]>>) -> tensor<?x3xf32, #stepwell.shape<["s10", 3]>>
    %t = aten.t.default(%tanh_1) : (tensor<?x3xf32, #stepwell.shape<["s10", 3]>>) -> tensor<3x?xf32, #stepwell.shape<[3, "s10"]>>
    %matmul = aten.matmul.default(%tanh, %t) : (tensor<?x3xf32, #stepwell.shape<["s10", 3]>>, tensor<3x?xf32, #stepwell.shape<[3, "s10"]>>) -> tensor<?x?xf32, #stepwell.shape<["s10", "s10"]>>
    %softmax = aten.softmax.int(%matmul, -1) : (tensor<?x?xf32, #stepwell.shape<["s10", "s10"]>>) -> tensor<?x?xf32, #stepwell.shape<["s10", "s10"]>>
    %matmul_1 = aten.matmul.default(%softmax, %a) : (tensor<?x?xf32, #stepwell.shape<["s10", "s10"]>>, tensor<?x3xf32, #stepwell.shape<["s10", 3]>>) -> tensor<?x3xf32, #stepwell.shape<["s10", 3]>>
    func.return %matmul_1 : tensor<?x3xf32, #stepwell.shape<["s10", 3]>>
  }
}
