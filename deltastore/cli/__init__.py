"""The command line, `deltastore <verb> STORE`: look into a store and keep it small (docs/cli.md).

One module a verb. Each has `add`, which declares the verb and its arguments, and `run`, which
opens the store, asks it, and shows the answer. `program` dispatches and turns errors into one line
and an exit code; `output` and `progress` are the only ones that know whether a terminal looks on.

Has no serializer and no key: what it shows is what a store tells without decoding a value.
"""
