"""One file for each table or figure of the paper, and for each of our own: run() does the work, report() shows it.

A study is a module, or an object of one, with TITLE, CORE_MINUTES, run(store, workers), missing(store) and
report(store); its entry point in the group "widemargin.studies" is its name on the command line.
"""
