"""Lowerings of ATen operations to XNNPACK's nodes; `values` registers the goal `xnnpack`."""

import stepwell.translate.lowerings.xnnpack.values  # noqa: F401  # pyright: ignore[reportUnusedImport]
