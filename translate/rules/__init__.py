"""Rules: rewrites defined by their text. `notation` parses them, `compiling` compiles them."""

from stepwell.translate.rules.rewrite import RuleRewrite, RuleSet, read_rules

__all__ = ["RuleRewrite", "RuleSet", "read_rules"]
