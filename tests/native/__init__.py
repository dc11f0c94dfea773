"""The compiled core under sanitizers: a build whose warnings are errors, which ends at the first
read or write outside its memory and at undefined behaviour."""
