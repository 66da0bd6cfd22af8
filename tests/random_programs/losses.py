"""Losses and distances."""

from .drawing import Draw
from .forms import form, operators


@form("losses")
def loss(d: Draw) -> str:
    x = d.floating()
    y = d.tensor(lambda t: t.shape == d.space[x].shape and t.is_floating_point())
    if y == x or d.maybe(0.3):
        y = d.constant(d.space[x].shape, d.named_dtype(x))
    how = d.choose("mean", "sum", "none")
    name = d.choose(
        "mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "kl_div", "soft_margin_loss"
    )
    texts = [f"F.{name}({x}, {y}, reduction={how!r})"] * 4
    if how != "sum":
        texts.append(f"F.binary_cross_entropy_with_logits({x}, torch.sigmoid({y}))")
        texts.append(f"F.binary_cross_entropy(torch.sigmoid({x}), torch.sigmoid({y}))")
        texts.append(f"F.poisson_nll_loss({x}, {y}.abs(), reduction={how!r})")
    if d.space[x].dim():
        axis = d.axis(x)
        texts.append(f"F.cosine_similarity({x}, {y}, {axis})")
        texts.append(f"F.pairwise_distance({x}, {y})")
    else:
        texts.append(f"F.cosine_similarity({x}, {y}, 0)")
    return d.rng.choice(texts)


operators(
    globals(),
    """
losses: x = d.floating(2, 2); rows, classes = d.space[x].shape
: target = d.hold(f"nn.Buffer(integers({d.seed}, ({rows},), 0, {max(classes, 1)}))")
: how = d.choose("mean", "sum", "none")
: more = d.choose("", ", label_smoothing=0.1", ", ignore_index=0")
    F.cross_entropy({x}, {target}, reduction={how!r}{more})
    F.nll_loss(F.log_softmax({x}, 1), {target}, reduction={how!r})
    F.multi_margin_loss({x}, {target})
""",
)
