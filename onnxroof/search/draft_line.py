"""A written graph as `pieces` reads it: a line of nodes that can be cut, priced and kept."""

from __future__ import annotations

from collections import Counter
from itertools import accumulate, chain
from typing import TYPE_CHECKING

from onnxroof.builder.draft import Draft, Names, Reads
from onnxroof.builder.recipes import Spec, recipe_of
from onnxroof.graph.types import Graph, GraphInput, Node
from onnxroof.search.pieces import costed, entry_name, stands_alone
from onnxroof.shapes import ShapedGraph

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onnxroof.builder.recipes import Key, Recipe
    from onnxroof.cost import GraphCost
    from onnxroof.ops.call import OpCall, TensorInfo
    from onnxroof.search.pieces import Piece


MOST_RECIPES = 100_000
"""Recipes that are remembered to stand alone."""


class DraftLine:
    """A draft as `onnxroof.search.pieces` cuts it (see `Line` there).

    Nodes no output depends on are left out and equal ones run once, as in runtimes that share
    common subexpressions.

    Args:
        draft: The finished graph.
        shares: Whether the runtime runs equal nodes once.
    """

    __slots__ = (
        "calls", "draft", "first_outputs", "inputs", "keys", "last_uses", "nodes", "outputs",
        "reads",
    )  # fmt: skip

    def __init__(self, draft: Draft, *, shares: bool) -> None:
        self.draft = draft
        recipes = draft.recipes
        nodes, self.reads, self.outputs = _connections(draft, shares=shares)
        self.nodes = nodes
        made = [recipes[at] for at in nodes]
        self.keys: list[object] = list(made)
        self.calls = [recipe.call for recipe in made]
        firsts = draft.first_outputs
        self.first_outputs = [firsts[at] for at in nodes]
        self.inputs = draft.inputs
        self.last_uses = last_uses = [0] * (len(draft.infos) + 1)  # the last for absent ones
        for at, first in enumerate(self.first_outputs):
            last_uses[first] = at
            for position in range(first + 1, first + len(made[at].outputs)):
                last_uses[position] = at
        for at, reads in enumerate(self.reads):
            for position in reads:
                last_uses[position] = at

    def costed(self, pieces: Sequence[Piece]) -> GraphCost:
        """Pieces as one counted graph, side by side; their weights are left out."""
        nodes: list[Node] = []
        calls: list[OpCall] = []
        inputs: list[GraphInput] = []
        outputs: list[str] = []
        tensors: dict[str, TensorInfo] = {}
        constants = self.draft.constants
        for number, piece in enumerate(pieces):
            names = Names(self.draft.tensor_names)
            for at in piece.entries:
                names[at] = entry_name(number, at)
                inputs.append(self.draft.graph_input(at, names[at]))
                tensors[names[at]] = self.draft.infos[at]
            for place in piece.nodes:
                reads, call = self.reads[place], self.calls[place]
                node = self.draft.node(self.nodes[place], len(nodes), reads, names)
                nodes.append(node)
                calls.append(call)
                own = len(reads)
                if own < len(node.inputs):
                    weights = zip(node.inputs[own:], call.inputs[own:], strict=True)
                    tensors.update(weights)  # type: ignore[arg-type]
                if constants:
                    for at in reads:
                        if at in constants:  # an equal call may hold another value
                            tensors[names[at]] = self.draft.infos[at]
                tensors.update(zip(node.outputs, call.outputs, strict=True))
            outputs += [names[at] for at in piece.outputs]
        graph = Graph(self.draft.name, tuple(nodes), tuple(inputs), tuple(outputs), {}, {})
        shaped = ShapedGraph(graph, tuple(calls), tensors)
        return costed(shaped)


def is_plain(draft: Draft, alone: set[Recipe]) -> bool:
    """Whether every node can be planned and counted apart from the others.

    Args:
        draft: The finished graph.
        alone: Recipes known to stand alone; new ones are added.
    """
    if draft.shares_weights:
        return False
    new = set(draft.recipes) - alone
    if not all(stands_alone(recipe.call) for recipe in new):
        return False
    if len(alone) >= MOST_RECIPES:
        alone.clear()
    alone |= new
    return True


def _connections(draft: Draft, *, shares: bool) -> tuple[list[int], list[Reads], list[int]]:
    """(nodes that run, what each reads, outputs): dead ones left out, then equal ones run once."""
    live, given = _without_dead(draft)
    if not shares:
        return live, given, draft.outputs
    nodes: list[int] = []
    connected: list[Reads] = []
    alias: dict[int, int] = {}
    twins: dict[tuple[object, ...], int] = {}
    firsts, recipes = draft.first_outputs, draft.recipes
    for at, reads in zip(live, given, strict=True):
        recipe = recipes[at]
        if alias and not alias.keys().isdisjoint(reads):
            reads = tuple([alias.get(position, position) for position in reads])  # noqa: PLW2901
        if recipe.is_sharable:
            read = _values_for_constants(draft, reads) if draft.constants else reads
            twin = twins.setdefault((recipe.computes, read), at)
            if twin != at:
                for place in range(len(recipe.outputs)):
                    alias[firsts[at] + place] = firsts[twin] + place
                continue
        nodes.append(at)
        connected.append(reads)
    return nodes, connected, [alias.get(position, position) for position in draft.outputs]


def _values_for_constants(draft: Draft, reads: Reads) -> tuple[object, ...]:
    """What is read, constants by their value where it is known: two of one value are equal."""
    infos, constants = draft.infos, draft.constants
    return tuple(
        [
            infos[at].value_key if at in constants and infos[at].value is not None else at
            for at in reads
        ]
    )


def _without_dead(draft: Draft) -> tuple[list[int], list[Reads]]:
    """The nodes some output depends on, and what each is given."""
    firsts, recipes, reads = draft.first_outputs, draft.recipes, draft.reads
    needed = set(draft.outputs)
    needed.update(*reads)
    if needed.issuperset(firsts):
        return list(range(len(recipes))), reads
    needed = set(draft.outputs)
    kept: list[int] = []
    for at in range(len(recipes) - 1, -1, -1):
        first = firsts[at]
        if not needed.isdisjoint(range(first, first + len(recipes[at].outputs))):
            needed.update(reads[at])
            kept.append(at)
    kept.reverse()
    return kept, [reads[at] for at in kept]


def peak_bytes(draft: Draft) -> int:
    """Most activation bytes alive at once in the order written; see `onnxroof.memory.lifetimes`.

    For drafts without bodies, constants computed on the way and unknown sizes.
    """
    nodes = len(draft.recipes)
    deaths = [-1] * (len(draft.infos) + 1)  # the last for absent inputs
    for at, (first, recipe) in enumerate(zip(draft.first_outputs, draft.recipes, strict=True)):
        for position in range(first, first + len(recipe.outputs)):
            deaths[position] = at
    for at, reads in enumerate(draft.reads):
        for position in reads:
            deaths[position] = at
    for position in draft.outputs:
        deaths[position] = nodes - 1
    change = [0] * (nodes + 1)
    births = [(position, 0) for position in draft.inputs]
    births += [
        (position, at)
        for at, (first, recipe) in enumerate(zip(draft.first_outputs, draft.recipes, strict=True))
        for position in range(first, first + len(recipe.outputs))
    ]
    for position, birth in births:
        if deaths[position] >= birth:
            nbytes = draft.infos[position].nbytes or 0
            change[birth] += nbytes
            change[deaths[position] + 1] -= nbytes
    return max(accumulate(change), default=0)


def draft_of(shaped: ShapedGraph, known: dict[Key, Recipe]) -> Draft | None:
    """A sized graph as a draft; None when a node of it does not stand for itself.

    Args:
        shaped: The graph.
        known: Recipes made before, by what they depend on.
    """
    graph, tensors, stored = shaped.graph, shaped.tensors, shaped.graph.constants
    draft = Draft(graph.name)
    infos, constants = draft.infos, draft.constants
    places: dict[str, int] = {"": -1}
    for item in graph.inputs:
        draft.inputs.append(_place(draft, places, item.name, shaped))
    uses = Counter(chain.from_iterable([node.inputs for node in graph.nodes]))
    own = {
        name
        for name, constant in graph.constants.items()
        if uses[name] == 1
        and constant.origin == "initializer"
        and not constant.renamed
        and constant.nonzeros is None
        and not constant.may_have_value
    }
    for node, call in zip(graph.nodes, shaped.calls, strict=True):
        inputs, outputs = node.inputs, node.outputs
        if call.bodies or len(call.outputs) != len(outputs) or "" in outputs:
            return None
        end = len(inputs)
        while end and inputs[end - 1] in own:
            end -= 1
        reads = [places.get(name) for name in inputs[:end]]
        if None in reads:
            reads = [_constant(draft, places, name, shaped) for name in inputs[:end]]
            if None in reads:
                return None
        draft.reads.append(tuple(reads))  # type: ignore[arg-type]
        # a weight's bytes are of its own type, whatever precision the call has
        key: Key = (call, end, *[stored[name].dtype for name in inputs if name in stored])
        if constants:
            key += tuple([infos[at].value_key for at in reads if at in constants])
        recipe = known.get(key)
        if recipe is None:
            recipe = known[key] = recipe_of(key, node, call, shaped, end)
        draft.recipes.append(recipe)
        draft.first_outputs.append(len(infos))
        for name in outputs:
            places[name] = len(infos)
            infos.append(tensors[name])
    draft.outputs = [places[name] for name in graph.outputs if name in places]
    return draft if len(draft.outputs) == len(graph.outputs) else None


def _place(draft: Draft, places: dict[str, int], name: str, shaped: ShapedGraph) -> int:
    """The next position, for a tensor of this name."""
    at = places[name] = len(draft.infos)
    draft.infos.append(shaped.tensors[name])
    return at


def _constant(draft: Draft, places: dict[str, int], name: str, shaped: ShapedGraph) -> int | None:
    """The position of a tensor, made for a constant that had none; None for an unusual one."""
    if name in places:
        return places[name]
    constant = shaped.graph.constants.get(name)
    if constant is None or constant.nonzeros is not None or constant.renamed:
        return None
    at = _place(draft, places, name, shaped)
    values = () if constant.may_have_value else None
    draft.constants[at] = Spec(constant.dtype, constant.shape, values, constant.origin)
    return at
