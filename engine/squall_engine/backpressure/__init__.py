"""How a slow consumer stops its producers: `credit` bounds what is on its way to a task, `inbox`
and `memory_size` what waits there, `gates` says which tasks may not run. Pure decisions. May import
`core` and `transport`.
"""
