"""Compares fair rates on shared uplinks with exact filling, on drawn graphs of links."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline import network

CLOSE = 1e-9
Flow = tuple[float, list[int]]


@st.composite
def graphs(draw: st.DrawFn) -> tuple[float, int, list[Flow]]:
    """Draw a capacity, links and flows, with equal demands and demands of all sizes."""
    links = draw(st.integers(1, 8))
    demand = st.one_of(st.sampled_from([1.0, 2.0, 3.0, 5.0]), st.floats(1e-3, 1e3))
    used = st.sets(st.integers(0, links - 1), max_size=4).map(sorted)
    flows = draw(st.lists(st.tuples(demand, used), max_size=14))
    return draw(st.sampled_from([1.0, 10.0, 7.3])), links, flows


def exact(capacity: float, links: int, flows: list[Flow]) -> list[Fraction]:
    """Raise all rates together, as fractions, until each flow has stopped."""
    rates = [Fraction(0)] * len(flows)
    growing = set(range(len(flows)))
    while growing:
        room = [Fraction(flows[i][0]) - rates[i] for i in growing]
        for link in range(links):
            here = [i for i in growing if link in flows[i][1]]
            if here:
                used = sum(rates[i] for i, flow in enumerate(flows) if link in flow[1])
                room.append((Fraction(capacity) - used) / len(here))
        step = min(room)
        for i in growing:
            rates[i] += step
        full = {
            link
            for link in range(links)
            if sum(rates[i] for i, flow in enumerate(flows) if link in flow[1])
            == Fraction(capacity)
        }
        growing = {
            i for i in growing if rates[i] < Fraction(flows[i][0]) and not full & set(flows[i][1])
        }
    return rates


@given(graph=graphs())
def test_fair_rates_are_those_of_exact_filling(graph: tuple[float, int, list[Flow]]) -> None:
    wanted = [float(rate) for rate in exact(*graph)]
    assert network.fair_rates(*graph) == pytest.approx(wanted, rel=CLOSE)


@given(graph=graphs())
def test_no_link_carries_more_than_it_can(graph: tuple[float, int, list[Flow]]) -> None:
    capacity, links, flows = graph
    rates = network.fair_rates(*graph)
    for link in range(links):
        used = sum(rate for rate, flow in zip(rates, flows, strict=True) if link in flow[1])
        assert used <= capacity * (1.0 + CLOSE)
    assert all(0.0 < rate <= flow[0] for rate, flow in zip(rates, flows, strict=True))


@given(graph=graphs())
def test_no_rate_can_rise_without_lowering_a_smaller_one(
    graph: tuple[float, int, list[Flow]],
) -> None:
    capacity, links, flows = graph
    rates = network.fair_rates(*graph)
    on = [[i for i, flow in enumerate(flows) if link in flow[1]] for link in range(links)]
    for i, (demand, used) in enumerate(flows):
        if rates[i] >= demand:
            continue
        # a full link limits the flow, and no other flow has more on it
        assert any(
            sum(rates[k] for k in on[link]) >= capacity * (1.0 - CLOSE)
            and max(rates[k] for k in on[link]) <= rates[i] * (1.0 + CLOSE)
            for link in used
        )


@given(graph=graphs(), data=st.data())
def test_order_and_strangers_change_no_bit(
    graph: tuple[float, int, list[Flow]], data: st.DataObject
) -> None:
    """Flows come in another order, and a second graph is added."""
    capacity, links, flows = graph
    rates = network.fair_rates(*graph)
    order = data.draw(st.permutations(range(len(flows))))
    shuffled = network.fair_rates(capacity, links, [flows[i] for i in order])
    assert shuffled == [rates[i] for i in order]
    _, more, others = data.draw(graphs())
    beside = [(demand, [link + links for link in used]) for demand, used in others]
    together = network.fair_rates(capacity, links + more, [*flows, *beside])
    assert together[: len(flows)] == rates


def test_golden_of_the_text() -> None:
    flows: list[Any] = [(8.0, [0, 1]), (6.0, [1, 2]), (3.0, [0, 2])]
    rates = network.fair_rates(10.0, 3, flows)
    assert rates == [5.0, 5.0, 3.0]
    kept = [rate / demand for rate, (demand, _) in zip(rates, flows, strict=True)]
    assert [round(factor, 5) for factor in kept] == [0.625, 0.83333, 1.0]
