"""Models that OpenVINO's CPU plug-in exports: their parts, and the changes that keep float32.

An exported model is six numbers (offset and size of custom data, of constants, and of the model),
then these three parts. The model is XML, whose bytes are combined with a fixed key by exclusive or.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

from stepwell.ir.diagnostics import ArtifactError

_HEADER = struct.Struct("<6Q")
_KEY = bytes((0x30, 0x60, 0x70, 0x02, 0x04, 0x08, 0x3F, 0x6F, 0x72, 0x74, 0x78, 0x7F))
Port = tuple[str, str]
"""A layer's id, and the id of one of its ports."""


def parts(exported: bytes) -> tuple[Element, bytes]:
    """Return the XML and the constants of an exported model.

    Raises:
        ArtifactError: the bytes are no such model.
    """
    if len(exported) >= _HEADER.size:
        _, _, first, count, start, size = _HEADER.unpack_from(exported)
        xml = _coded(exported[start : start + size])
        if xml.startswith(b"<?xml") and start + size <= len(exported):
            return ElementTree.fromstring(xml), exported[first : first + count]
    raise ArtifactError(
        "the delegate is no model that OpenVINO's CPU plug-in exported",
        help="this package reads models of openvino 2025.4",
    )


def in_single(exported: bytes) -> bytes:
    """Change an exported model so that no CPU computes it in bfloat16, whatever its default is.

    Every operator gets the attribute that keeps its precision. A fused sub-graph with a matrix
    product has no such attribute, and its import fails where bfloat16 is the default: its operators
    are moved out of it.
    """
    net, _ = parts(exported)
    inline(net, lambda body: any(layer.get("type") == "MatMul" for layer in body.iter("layer")))
    _renumber(net)
    for layer in net.iter("layer"):
        held = layer.find("rt_info")
        held = SubElement(layer, "rt_info") if held is None else held
        SubElement(held, "attribute", {"name": "precise", "version": "0"})
    coded = _coded(b'<?xml version="1.0"?>\n' + ElementTree.tostring(net))
    *head, _ = _HEADER.unpack_from(exported)
    return _HEADER.pack(*head, len(coded)) + exported[_HEADER.size : head[-1]] + coded


def _renumber(net: Element) -> None:
    """Count the names that OpenVINO made in the order of the model.

    It counts the nodes of a process: the same model exported twice would differ.
    """
    counted: dict[str, str] = {}

    def count(name: re.Match[str]) -> str:
        return counted.setdefault(name[0], f"{name[1]}_{len(counted)}")

    for each in net.iter():
        is_list = each.get("name") in ("fused_names", "originalLayersNames")
        for key in ("value",) if is_list else ("name", "names", "output_names"):
            if key in each.attrib and each.get("type") != "Parameter":
                each.attrib[key] = re.sub(r"\b([A-Za-z]+)_(\d+)\b", count, each.attrib[key])


def inline(net: Element, wanted: Callable[[Element], bool]) -> None:
    """Replace the fused sub-graphs of a model whose body is wanted by their operators."""
    layers, edges = child(net, "layers"), child(net, "edges")
    sources = sources_of(edges)
    for layer in list(layers):
        body = layer.find("body")
        if body is not None and wanted(body):
            layers.remove(layer)
            _move_out(layer, body, layers, sources)
    edges.clear()
    names = ("to-layer", "to-port"), ("from-layer", "from-port")
    for ends in sources.items():
        pairs = zip(names, ends, strict=True)
        SubElement(edges, "edge", {k: v for n, end in pairs for k, v in zip(n, end, strict=True)})


def _move_out(layer: Element, body: Element, layers: Element, sources: dict[Port, Port]) -> None:
    outer, ports = layer.attrib["id"], child(layer, "port_map")
    prefix, inner = f"{outer}0000", sources_of(child(body, "edges"))
    inputs = {
        p.attrib["internal_layer_id"]: p.attrib["external_port_id"] for p in ports.iter("input")
    }
    results = {
        p.attrib["internal_layer_id"]: p.attrib["external_port_id"] for p in ports.iter("output")
    }

    def origin(end: Port) -> Port:
        """Return where a value of the body comes from, outside."""
        return sources[outer, inputs[end[0]]] if end[0] in inputs else (prefix + end[0], end[1])

    given: dict[Port, Port] = {}
    for (target, port), source in inner.items():
        if target in results:
            given[outer, results[target]] = origin(source)
        else:
            sources[prefix + target, port] = origin(source)
    for held in child(body, "layers"):
        if held.attrib["id"] not in inputs and held.attrib["id"] not in results:
            held.attrib["id"] = prefix + held.attrib["id"]
            layers.append(held)
    for target in [end for end in sources if end[0] == outer]:
        del sources[target]
    sources.update({end: given.get(source, source) for end, source in sources.items()})


def sources_of(edges: Element) -> dict[Port, Port]:
    """Return the port that each port reads."""
    return {
        (e.attrib["to-layer"], e.attrib["to-port"]): (e.attrib["from-layer"], e.attrib["from-port"])
        for e in edges
    }


def child(element: Element, name: str) -> Element:
    """Return the part of a model with a name.

    Raises:
        ArtifactError: there is none.
    """
    found = element.find(name)
    if found is None:
        raise ArtifactError(f"the model of a delegate has no {name}")
    return found


def _coded(data: bytes) -> bytes:
    repeated = _KEY * (len(data) // len(_KEY) + 1)
    number = int.from_bytes(data, "little") ^ int.from_bytes(repeated[: len(data)], "little")
    return number.to_bytes(len(data), "little")
