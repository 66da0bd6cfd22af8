"""Rules: rewrites that are their own text. `notation` reads them, `compiling` makes them fast."""

from stepwell.translate.rules.rewrite import RuleRewrite, read_rules

__all__ = ["RuleRewrite", "read_rules"]
