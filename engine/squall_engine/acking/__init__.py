"""The outcome of messages: `coordinator` settles acks with local and remote ackers, `dead_letters`
counts failures and makes dead letters, `suspects` isolates messages that kill workers (`quarantine`
decides which are held back). May import `dataflow`, `tasks` and `core`.
"""
