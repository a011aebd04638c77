"""One file for each table or figure of the paper, and for each of our own: run() does the work, report() shows it.

A study is a frozen dataclass with TITLE, CORE_MINUTES, run(store, workers), missing(store) and report(store).  Its
other fields are its sizes (seeds, plans, methods, grids), with those that were published as defaults: STUDY has them
all, and `replace(STUDY, seeds=(0,))` is a smaller one.  Its entry point in the group "widemargin.studies" is its name
on the command line.

What is stored is named by the parts that decide it, never by the study, so that studies share it.  How finely something
is measured (`plane.Grids`, `Tables.measured`) is no such part: a study with other grids needs a store of its own.
"""
