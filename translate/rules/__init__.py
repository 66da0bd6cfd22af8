"""Rules: rewrites defined by their text. `notation` parses them, `compiling` compiles them."""

from stepwell.translate.rules.rewrite import RuleRewrite, read_rules

__all__ = ["RuleRewrite", "read_rules"]
