builtin.module attributes {stepwell.level = "aten"} {
  func.func @forward(%a: tensor<?x3xf32, #stepwell.shape<["s10", 3]>>) -> tensor<?x3xf32, #stepwell.shape<["2*s10", 3]>> attributes {stepwell.inputs = [{name = "a_0"}], stepwell.outputs = [{name = "exp"}], stepwell.in_spec = "((*), {})", stepwell.out_spec = "*", stepwell.ranges = ["1 <= s10 <= 12"]} {
    %tanh = aten.tanh.default(%a) : (tensor<?x3xf32, #stepwell.shape<["s10", 3]>>) -> tensor<?x3xf32, #stepwell.shape<["s10", 3]>>
    %cat = aten.cat.default([%a, %tanh]) : (tensor<?x3xf32, #stepwell.shape<["s10", 3]>>, tensor<?x3xf32, #stepwell.shape<["s10", 3]>>) -> tensor<?x3xf32, #stepwell.shape<["2*s10", 3]>>
    %exp = aten.exp.default(%cat) : (tensor<?x3xf32, #stepwell.shape<["2*s10", 3]>>) -> tensor<?x3xf32, #stepwell.shape<["2*s10", 3]>>
    func.return %exp : tensor<?x3xf32, #stepwell.shape<["2*s10", 3]>>
  }
}
