"""Find rules that nobody wrote: enumerate terms of a target's nodes, and compare those that are
equal.

`grammar` lists the nodes, `enumeration` computes the terms bottom-up and finds equal ones of
different cost, `candidates` removes what today's flow does already, and `proofs` writes the rest
as rules and passes them to the solver. `running` distributes the work and continues an
interrupted run.

Sources: Jia et al., TASO, SOSP 2019 (enumeration with fingerprints, then proofs); Nandi et al.,
Ruler, OOPSLA 2021 (bottom-up enumeration over representatives, rules as oriented equalities).
"""
