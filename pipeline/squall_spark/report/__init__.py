"""`storm spark report`: a report on the history of a topology, by a job on Spark.

choose     which topology, which files, since when                     (pure, but the listing)
gather     the job: rows of the files, summed up                       (Spark)
analyse    sums to a report: percentiles, skew, recoveries             (pure)
advise     a parallelism for each component                            (pure)
terminal, page, plots     the report for people                        (pure)
main       the process that `storm spark report` starts
"""
