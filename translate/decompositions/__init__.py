"""Decompositions: an operator as an expression of other operators, by families of operators.

Three notations, in the same files where families meet:

- a rule as text (`read_rules`), which the prover verifies;
- a function over values (`@lowers(…, to="aten")`), which looks at types, constants and users;
- in `traced`, a function over PyTorch's tensors, for operators that PyTorch has no decomposition of,
  and for those whose parts PT2E quantizes before a program is imported.

A decomposition declares what it needs of a target: element types and ranks that the target's nodes
have (`requires=`, or a rule's `unless … for target`), and the special values that must survive
(`deviation=`, `proven`). It also declares the phases of pipelines that run it (`phases=`), and
`conversion` selects those of a target by the operations that its lowerings take.
"""
