# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
An online shop as an MCP server: its products, and the orders of its customers.
"""

from typing import TypedDict

from mcp.server import MCPServer

server = MCPServer("shop", version="1.0.0", log_level="WARNING")


class Order(TypedDict):
    number: int
    product: str
    price: float


class Orders(TypedDict):
    orders: list[Order]
    total: float


PRODUCTS = {"lamp": 39.9, "desk": 240.0, "chair": 120.0}
SOLD = {"C-17": [(1001, "desk"), (1002, "lamp")]}


@server.tool()
def search(text: str) -> str:
    """Search the products of the shop."""
    return ", ".join(f"{name} ({price:.2f})" for name, price in PRODUCTS.items() if text in name) or "nothing found"


@server.tool()
def list_orders(customer: str) -> Orders:
    """List the orders of a customer."""
    orders = [Order(number=number, product=name, price=PRODUCTS[name]) for number, name in SOLD.get(customer, [])]
    return Orders(orders=orders, total=sum(order["price"] for order in orders))


if __name__ == "__main__":
    server.run("stdio")
