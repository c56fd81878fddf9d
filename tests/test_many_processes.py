# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Simulations of many processes: they run, and nothing grows that need not; docs/scale.md."""

import json

import commit_times
import pytest
import scale_page
from many_processes import VALUES, control_traffic
from stored_runs import FILES, requests_of_a_commit, requests_of_a_restart


@pytest.mark.integration
@pytest.mark.parametrize("count", [4, 12])
def test_process_0_sends_each_process_all_values_and_little_more(count):
    found = control_traffic(count, repeats=2, idle_secs=0.1)
    lost = f"process {count - 1} of {count} (host-{count - 1}) is gone"
    assert [lost in verdict for verdict in found["verdicts"]] == [True, True]
    for part, value in VALUES.items():
        least = (count - 1) * count * len(json.dumps(value))
        assert least < found[part]["sent_bytes"] < least + (count - 1) * (2 * count + 60)
    assert found["stop"]["sent_bytes"] < (count - 1) * 300


def test_requests_of_a_restart_do_not_grow_with_processes_or_with_what_was_saved(store):
    _, few = requests_of_a_restart(store, 10, steps=2, rows=5)
    first, many = requests_of_a_restart(store, 50, steps=12, rows=30)
    # gcsfs looks for an object and for a folder at once, and drops the later answer.
    assert sum(many.values()) == pytest.approx(sum(few.values()), abs=4)
    assert many["read"] == few["read"]
    assert sum(first.values()) > sum(many.values()) + 30  # process 0 reads the rows


@pytest.mark.parametrize("hosts", [1, 5])
def test_a_commit_costs_one_request_for_each_file(store, hosts):
    mark = 1
    expected = {"list": 1, "read": hosts * FILES + mark, "write": 1}
    assert requests_of_a_commit(store, hosts) == expected


@pytest.mark.integration
def test_a_save_takes_at_least_the_requests_that_follow_one_another():
    found, secs = commit_times.saves_of(1, 30), 0.03
    assert found["requests"] > found["files"] > 10
    assert found["seal_secs"] > 6 * secs  # two small files, a list, reads, and the checksums
    assert found["committed_secs"] > found["waits_secs"] + found["seal_secs"] + 10 * secs
    assert found["waits_secs"] > 5 * secs


def test_tables_of_the_page_have_the_measured_figures():
    figures = json.loads(scale_page.GOLDEN.read_text())
    commits = json.loads(scale_page.COMMITS.read_text())
    text = scale_page.PAGE.read_text()
    assert scale_page.page(text, figures, commits) == text
