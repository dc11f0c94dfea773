"""`storm report` and `storm spark report`: a report on the history of a topology.

choose     which topology, which files, since when                     (pure, but the listing)
here       rows of the files, summed up in this process                (pyarrow)
gather     the same as a job on Spark                                  (Spark)
fold       grouped rows of both to sums                                (pure)
analyse    sums to a report: percentiles, skew, recoveries             (pure)
confidence, missing, verdict     parts of it                           (pure)
advise     a parallelism for each component                            (pure)
terminal, page, plots     the report for people                        (pure)
main       the process that the commands start
"""
