"""The router: one of several nodes runs, and a function of the program says which."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from pydantic import Field

from workflow.agent import WorkflowNode, notes
from workflow.bridge import as_steps
from workflow.checks import contract
from workflow.failures import ContractError
from workflow.messages import Context, Message
from workflow.requests import NodeCall, Steps


class RouterNode(WorkflowNode):
    """Runs one of `routes`, the one that `routing_func(context)` names, else `default_route`."""

    @contract
    def __init__(
        self,
        name: str,
        routes: Annotated[dict[str, WorkflowNode], Field(min_length=1)],
        routing_func: Callable[..., Any],
        default_route: str = "default",
        *,
        description: str = "",
        role: str = "",
    ) -> None:
        super().__init__(name, **notes(description, role))
        self.routes = routes
        self.routing_func = routing_func
        self.default_route = default_route

    def steps(self, context: Context) -> Steps:
        chosen = yield from as_steps(self.routing_func, context)
        route = chosen if chosen in self.routes else self.default_route
        if route not in self.routes:
            known = ", ".join(map(repr, self.routes))
            raise ContractError(
                f"RouterNode {self.name!r}: routing_func chose {chosen!r} and default_route is "
                f"{self.default_route!r}, but the routes are {known}"
            )
        result = yield NodeCall(self.routes[route], context)
        metadata = {**result.metadata, "route": route, "route_taken": route, "routed_from": self.name}
        return Message(result.content, result.message_type, metadata, sender=self.name)


def create_keyword_router(
    name: str, keyword_routes: dict[str, WorkflowNode], default_node: WorkflowNode, case_sensitive: bool = False
) -> RouterNode:
    """A router to the node of the first keyword that occurs in the latest message, or else to `default_node`."""

    def keyword_in(context: Context) -> str:
        message = context.get_latest_message()
        text = message.content if message else ""
        shown = text if case_sensitive else text.lower()
        said = (word for word in keyword_routes if (word if case_sensitive else word.lower()) in shown)
        return next(said, "default")

    return RouterNode(name, {**keyword_routes, "default": default_node}, keyword_in)
