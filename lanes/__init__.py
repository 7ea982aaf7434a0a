"""The host-side round loop: pure Python, no arrays.

One call of `Lanes.round`, and the file to change for each step:

    end cancelled streams, start waiting ones      roster.py, memory.py, pages.py
    fill one chunk of one prompt                   turns.py
    choose the streams of the round                turns.py
    ask for drafts                                 proposer.py, copy_drafts.py, suffix_index.py; joint_depths.py
    weigh them by how sure the drafter is          weighing.py, calibration.py
    share the rows among streams                   allocation.py, prices.py
    verify all windows in one forward              window.py, backend.py
    accept, cut, commit                            accept.py, cuts.py, outcome.py
    tell                                           listener.py
    queue the next round before this one is read   ahead.py, flight.py

`loop.py` puts them in this order, `stream.py` is the state that they work on, and `containment.py` keeps a failure to
the streams that it belongs to.
"""
