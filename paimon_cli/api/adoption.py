"""Files of other engines that become a table, without being rewritten."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from paimon_cli.api.arguments import checks_arguments, takes
from paimon_cli.api.maintenance import Planned
from paimon_cli.api.opened_catalog import OpenedCatalog
from paimon_cli.catalog.table_location import locate_table
from paimon_cli.requests.adoption import AdoptOptions
from paimon_cli.storage.catalog_options import store_options

if TYPE_CHECKING:
    from paimon_cli.jobs.adoption.adoption_plan import Adopted, Adoption, AdoptionPlan
    from paimon_cli.jobs.engine import Progress

_THREADS = 8
"""How many footers are read at the same time."""


@checks_arguments
class Adopting(OpenedCatalog):
    """What adopts files."""

    @takes(AdoptOptions)
    def plan_adoption(self, options: AdoptOptions) -> Planned[AdoptionPlan, Adopted]:
        """Plan to make a table of the files of a directory, of an Iceberg table, or of a Hive table, in one commit.

        It is an append table without buckets, of the files as they are, or with `primary_key` a table into which their rows are
        written.

        The footers of all files are read. Raises `NotSupported` for a Delta or Hudi table, for an Iceberg table with deletes or
        with evolved columns or partitions, for views and ACID tables of Hive, and
        for files whose columns differ or that engines of Paimon would not understand.
        """
        from paimon_cli.jobs.adoption.adoption_plan import plan_adoption
        from paimon_cli.jobs.adoption.hive import hive_source, hive_table_of
        from paimon_cli.jobs.adoption.source_search import find_source

        location = locate_table(options.table, self.url, self._options, is_new=True)
        location = replace(location, allow_unsafe_commit=self._allow_unsafe_commit)
        of_store = store_options(location.storage_options)
        in_hive, progress = hive_table_of(options.source, self._metastore), self.runtime.new_progress()
        if in_hive is None:
            source = find_source(options.source, of_store, _THREADS)
        else:
            source = hive_source(*in_hive, of_store, _THREADS)
        found = plan_adoption(source, location, options, self._table_options, progress, _THREADS)
        for names in found.shared:
            self.runtime.warn(f"{names} are one partition: the same value, written in several ways")
        return Planned(found.plan(), lambda: self._adopt(found, of_store, progress))

    def _adopt(self, adoption: Adoption, store: Mapping[str, str], progress: Progress) -> Adopted:
        if not adoption.definition.primary_keys:
            from paimon_cli.jobs.adoption.adopt_job import adopt

            return adopt(adoption, progress)
        from paimon_cli.jobs.adoption.rewrite_job import rewrite

        with self.runtime.engine_running() as engine:
            return rewrite(adoption, store, engine, progress)

    @takes(AdoptOptions)
    def adopt(self, options: AdoptOptions) -> Adopted:
        """Make a table of the files of a directory, or of an Iceberg table; see `plan_adoption`.

        The source stays as it is, unless `files` is `move`. After a failure there is no table.
        """
        return self.plan_adoption(**vars(options)).run()
