"""A graph as `GraphBuilder` writes it down: recipes and the numbers of the tensors they read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxroof.builder.recipes import OPSET, Spec, shared_recipes
from onnxroof.errors import InvalidGraphError, quoted
from onnxroof.graph.types import Graph, GraphInput, Model, Node, ValueType

if TYPE_CHECKING:
    from collections.abc import Mapping

    from onnxroof.builder.recipes import Recipe
    from onnxroof.graph.types import DType
    from onnxroof.ops.call import Shape, TensorInfo

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
        if not self.constants:
            return False
        weights = {at for at, spec in self.constants.items() if spec.values is None or spec.shape}
        uses: list[int] = []
        for recipe, reads in zip(self.recipes, self.reads, strict=True):
            operator = recipe.call.operator
            is_literal = operator is not None and operator.pointwise  # a single number there
            held = weights if is_literal else self.constants
            uses += [at for at in set(reads) if at in held]
        return len(set(uses)) < len(uses)

    def graph(self) -> Graph:
        """The graph as a file would say it."""
        whole = range(len(self.recipes))
        names = Names(self.tensor_names)
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


class Names(dict[int, str]):
    """Names of tensors by position, made up when first asked for."""

    def __missing__(self, at: int) -> str:
        name = self[at] = f"t{at}"
        return name
