"""`history check`: which anomalies did happen to a table. Exit code 4 on findings."""

from __future__ import annotations

from typing import Annotated

import typer

from paimon_cli.cli.command import Call, command, group
from paimon_cli.cli.findings_file import ReportFile, check_form
from paimon_cli.cli.output import Listing
from paimon_cli.cli.parameters import Given, TableName
from paimon_cli.cli.results import counted
from paimon_cli.errors import FINDINGS_EXIT_CODE
from paimon_cli.requests.integrity import HistoryCheckOptions

history = group("What did happen to a table.")


@command(history, "check", runs_jobs=True)
def check_history(
    call: Call, table: TableName, *, options: Annotated[Given, HistoryCheckOptions], report: ReportFile = None
) -> None:
    """Tell what went wrong in the history that is still retained. Exits with 4 on findings.

    Nothing is changed. Data files are read where metadata leaves a doubt. What has expired cannot be told any more; that is said,
    but is no finding.

    paimon-cli history check ./wh/shop.db/orders

    paimon-cli history check ./wh/shop.db/orders --since "7 d" --key id=7 -o json
    """
    from paimon_cli.invariants.anomalies import BY_NAME, PROVEN, UNTOLD, Anomaly

    check_form(report)
    opened = call.open(table)
    found = opened.history_check(**options)
    told = [anomaly for anomaly in found if anomaly.certainty != UNTOLD]
    call.show(Listing("AnomalyList", opened.name, Anomaly, found, footer=counted(len(told), "finding")))
    if report is not None:
        from paimon_cli.cli.findings_file import ReportedFinding, write_report

        name = opened.name
        wanted = options.get("rule") or tuple(BY_NAME)
        rules = {rule.name: rule.meaning for rule in BY_NAME.values() if rule.name in wanted}
        listed = [
            ReportedFinding(
                name, a.rule, "error" if a.certainty == PROVEN else "warning", f"snapshots {a.snapshots}", a.message, name
            )
            for a in told
        ]
        unknown = {(name, a.rule): a.message for a in found if a.certainty == UNTOLD}
        write_report(report, "history check", [name], rules, listed, failing=("error", "warning"), not_run=unknown)
    if told:
        raise typer.Exit(FINDINGS_EXIT_CODE)
