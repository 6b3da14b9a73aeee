"""A graph as `GraphBuilder` writes it down: recipes and the numbers of the tensors they read."""

from __future__ import annotations

from collections import Counter
from itertools import accumulate, chain
from typing import TYPE_CHECKING

from onnxroof.errors import InvalidGraphError, quoted
from onnxroof.graph.types import Graph, GraphInput, Model, Node, ValueType
from onnxroof.pieces import costed, stands_alone
from onnxroof.recipes import OPSET, Spec, recipe_of, shared_recipes
from onnxroof.shapes import ShapedGraph

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from onnxroof.cost import GraphCost
    from onnxroof.graph.types import DType
    from onnxroof.ops.call import OpCall, Shape, TensorInfo
    from onnxroof.pieces import Piece
    from onnxroof.recipes import Key, Recipe

Reads = tuple[int, ...]


class Draft:
    """Nodes in execution order and tensors in the order they came to be.

    Attributes:
        name: Name of the graph.
        recipes: What each node is.
        reads: Positions of the tensors each node is given; −1 for an absent optional one.
        first_outputs: Position of each node's first output; its others follow.
        infos: Type and shape of each tensor.
        constants: Weights and values given by hand, by position.
        inputs: Positions of the run-time inputs.
        outputs: Positions of the outputs.
        tensor_names: Names given to tensors, by position.
        node_names: Names given to nodes, by position.
        scopes: (first node, path) of every stretch below a module path.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.recipes: list[Recipe] = []
        self.reads: list[Reads] = []
        self.first_outputs: list[int] = []
        self.infos: list[TensorInfo] = []
        self.constants: dict[int, Spec] = {}
        self.inputs: list[int] = []
        self.outputs: list[int] = []
        self.tensor_names: dict[int, str] = {}
        self.node_names: dict[int, str] = {}
        self.scopes: list[tuple[int, str]] = []

    def check(self) -> None:
        """Raise InvalidGraphError unless the graph has an output and its names are distinct."""
        where = f"graph {quoted(self.name)}"
        if not self.outputs:
            raise InvalidGraphError(where, "it has no output: g.output(tensor)")
        given = list(self.tensor_names.values())
        if len(set(given)) < len(given):
            twice = next(name for name in given if given.count(name) > 1)
            raise InvalidGraphError(where, f"two tensors are named {quoted(twice)}")

    def model(self) -> Model:
        """The graph as if loaded from a file. Raises InvalidGraphError as `check` does."""
        from onnxroof import __version__

        self.check()
        opsets = dict.fromkeys(sorted({recipe.domain for recipe in self.recipes}), 1)
        producer = f"onnxroof {__version__}"
        return Model(self.graph(), {**opsets, "": OPSET}, 10, producer, None, 0, ())

    @property
    def batch_size(self) -> int:
        """Samples of one run: the leading dimension of the first input."""
        shape = self.infos[self.inputs[0]].shape if self.inputs else None
        return shape[0] if shape else 1

    @property
    def shares_weights(self) -> bool:
        """Whether several nodes read one weight."""
        weights = {at for at, spec in self.constants.items() if spec.values is None or spec.shape}
        if not weights:
            return False
        uses = [at for reads in self.reads for at in set(reads) if at in weights]
        return len(set(uses)) < len(uses)

    def graph(self) -> Graph:
        """The graph as a file would say it."""
        whole = range(len(self.recipes))
        names = _Names(self.tensor_names)
        nodes = [self.node(at, at, self.reads[at], names) for at in whole]
        constants = {names[at]: spec.constant(names[at]) for at, spec in self.constants.items()}
        for node, recipe, reads in zip(nodes, self.recipes, self.reads, strict=True):
            for name, spec in zip(node.inputs[len(reads) :], recipe.private, strict=True):
                constants[name] = spec.constant(name)
        inputs = tuple([self.graph_input(at, names[at]) for at in self.inputs])
        outputs = tuple([names[at] for at in self.outputs])
        return Graph(self.name, tuple(nodes), inputs, outputs, constants, {})

    def graph_input(self, at: int, name: str) -> GraphInput:
        """A tensor as an input of a graph."""
        info = self.infos[at]
        return GraphInput(name, ValueType("tensor", info.dtype, info.shape))

    def node(self, at: int, index: int, reads: Reads, names: Mapping[int, str]) -> Node:
        """A node of a graph.

        Args:
            at: Which.
            index: Its place in the graph it is for.
            reads: Positions of what it reads there.
            names: Names of tensors there.
        """
        recipe, first, name = self.recipes[at], self.first_outputs[at], self.node_name(at)
        inputs = [names[position] if position >= 0 else "" for position in reads]
        if recipe.private:
            inputs += [f"{name}.{spec.suffix}" for spec in recipe.private]
        outputs = tuple([names[place] for place in range(first, first + len(recipe.outputs))])
        return Node(
            name, recipe.domain, recipe.op_type, recipe.opset, tuple(inputs), outputs,
            recipe.attributes, index=index,
        )  # fmt: skip

    def node_name(self, at: int) -> str:
        """The name given, else operator and position, below the scope it was made in."""
        name = self.node_names.get(at) or f"{self.recipes[at].op_type}_{at}"
        if not self.scopes:
            return name
        path = ""
        for start, scope in self.scopes:
            if start > at:
                break
            path = scope
        return path + name

    def __getstate__(self) -> dict[str, object]:
        state = {name: value for name, value in vars(self).items() if name != "infos"}
        infos = [self.infos[at] for at in self.inputs]
        return {**state, "input_types": [(info.dtype, info.shape) for info in infos]}

    def __setstate__(self, state: dict[str, object]) -> None:
        types: list[tuple[DType | None, Shape | None]] = state.pop("input_types")  # type: ignore[assignment]
        vars(self).update(state)
        kitchen = shared_recipes()
        known = {at: kitchen.constant(spec) for at, spec in self.constants.items()}
        for at, (dtype, shape) in zip(self.inputs, types, strict=True):
            known[at] = kitchen.described(dtype, shape)
        for first, recipe in zip(self.first_outputs, self.recipes, strict=True):
            known.update(enumerate(recipe.outputs, first))
        self.infos = [known[at] for at in range(len(known))]


class _Names(dict[int, str]):
    """Names of tensors by position, made up when first asked for."""

    def __missing__(self, at: int) -> str:
        name = self[at] = f"t{at}"
        return name


class DraftLine:
    """A draft as `onnxroof.pieces` cuts it (see `Line` there).

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
        for piece in pieces:
            names = _Names(self.draft.tensor_names)
            if piece.entry >= 0:
                names[piece.entry] = piece.entry_name
            for at in self.inputs if piece.entry < 0 else (piece.entry,):
                inputs.append(self.draft.graph_input(at, names[at]))
                tensors[names[at]] = self.draft.infos[at]
            for place in range(piece.start, piece.stop):
                reads, call = self.reads[place], self.calls[place]
                node = self.draft.node(self.nodes[place], len(nodes), reads, names)
                nodes.append(node)
                calls.append(call)
                own = slice(len(reads), None)
                tensors.update(zip(node.inputs[own], call.inputs[own], strict=True))  # type: ignore[arg-type]
                for at in reads:
                    if at in constants:  # an equal call may hold another value
                        tensors[names[at]] = self.draft.infos[at]
                tensors.update(zip(node.outputs, call.outputs, strict=True))
            outputs += [names[at] for at in piece.outputs]
        graph = Graph(self.draft.name, tuple(nodes), tuple(inputs), tuple(outputs), {}, {})
        shaped = ShapedGraph(graph, tuple(calls), tensors)
        return costed(shaped)


def is_plain(draft: Draft) -> bool:
    """Whether every node can be planned and counted apart from the others."""
    return not draft.shares_weights and all(
        stands_alone(recipe.call) for recipe in set(draft.recipes)
    )


def _connections(draft: Draft, *, shares: bool) -> tuple[list[int], list[Reads], list[int]]:
    """(nodes that run, what each reads, outputs) with equal nodes run once."""
    nodes: list[int] = []
    connected: list[Reads] = []
    alias: dict[int, int] = {}
    twins: dict[tuple[Recipe, Reads], int] = {}
    firsts = draft.first_outputs
    for at, (recipe, reads) in enumerate(zip(draft.recipes, draft.reads, strict=True)):
        if alias:
            reads = tuple([alias.get(position, position) for position in reads])  # noqa: PLW2901
        if shares and recipe.is_sharable:
            twin = twins.setdefault((recipe, reads), at)
            if twin != at:
                for place in range(len(recipe.outputs)):
                    alias[firsts[at] + place] = firsts[twin] + place
                continue
        nodes.append(at)
        connected.append(reads)
    outputs = [alias.get(position, position) for position in draft.outputs]
    return *_without_dead(draft, nodes, connected, outputs), outputs


def _without_dead(
    draft: Draft, nodes: list[int], connected: list[Reads], outputs: list[int]
) -> tuple[list[int], list[Reads]]:
    needed = set(outputs)
    needed.update(*connected)
    firsts, recipes = draft.first_outputs, draft.recipes
    if all(firsts[at] in needed for at in nodes):
        return nodes, connected
    needed = set(outputs)
    kept: list[int] = []
    for place in range(len(nodes) - 1, -1, -1):
        at = nodes[place]
        first = firsts[at]
        if not needed.isdisjoint(range(first, first + len(recipes[at].outputs))):
            needed.update(connected[place])
            kept.append(place)
    kept.reverse()
    return [nodes[place] for place in kept], [connected[place] for place in kept]


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
    graph = shaped.graph
    draft = Draft(graph.name)
    places: dict[str, int] = {"": -1}
    for item in graph.inputs:
        draft.inputs.append(_place(draft, places, item.name, shaped))
    uses = Counter(chain.from_iterable([node.inputs for node in graph.nodes]))
    own = {
        name
        for name, constant in graph.constants.items()
        if uses[name] == 1
        and constant.origin == "initializer"
        and constant.identity is constant
        and constant.nonzeros is None
        and not constant.may_have_value
    }
    for node, call in zip(graph.nodes, shaped.calls, strict=True):
        if call.bodies or len(call.outputs) != len(node.outputs) or "" in node.outputs:
            return None
        end = len(node.inputs)
        while end and node.inputs[end - 1] in own:
            end -= 1
        reads = [
            places[name] if name in places else _constant(draft, places, name, shaped)
            for name in node.inputs[:end]
        ]
        if None in reads:
            return None
        draft.reads.append(tuple(reads))  # type: ignore[arg-type]
        values = [draft.infos[at].value_key for at in reads if at in draft.constants]
        key: Key = (call, end, *values)
        recipe = known.get(key)
        if recipe is None:
            recipe = known[key] = recipe_of(key, node, call, shaped, end)
        draft.recipes.append(recipe)
        draft.first_outputs.append(len(draft.infos))
        for name in node.outputs:
            _place(draft, places, name, shaped)
    draft.outputs = [places[name] for name in graph.outputs if name in places]
    return draft if len(draft.outputs) == len(graph.outputs) else None


def _place(draft: Draft, places: dict[str, int], name: str, shaped: ShapedGraph) -> int:
    """The next position, for a tensor of this name."""
    at = places[name] = len(draft.infos)
    draft.infos.append(shaped.tensors[name])
    return at


def _constant(draft: Draft, places: dict[str, int], name: str, shaped: ShapedGraph) -> int | None:
    """The position of a constant that is not a node's own; None for an unusual one."""
    constant = shaped.graph.constants.get(name)
    if constant is None or constant.nonzeros is not None or constant.identity is not constant:
        return None
    at = _place(draft, places, name, shaped)
    values = () if constant.may_have_value else None
    draft.constants[at] = Spec(constant.dtype, constant.shape, values, constant.origin)
    return at
