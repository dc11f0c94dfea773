"""What components record, and the consumers that receive it."""
