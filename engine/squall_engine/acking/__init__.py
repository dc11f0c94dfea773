"""What becomes of messages: `coordinator` settles acks with local and remote ackers,
`dead_letters` counts failures and gives up, `suspects` isolates messages that kill workers
(`docket` is the file that survives such a death). May import `dataflow`, `tasks` and `core`.
"""
