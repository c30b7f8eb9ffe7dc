"""A deployment of many days in one simulation: real clients, the real service, and what is published, under a simulated clock: README.md.

    definitions   two releases of the definitions, with a metric of every kind
    world         simulated time, and the events in their order
    values        what people record, and what each of their reports must stand for
    people        lives: days of use, consent, lost and copied state, wrong clocks
    clients       what a person does with a client, in Python and in Node
    window        an answer that another process records
    veterans      the installation that the release candidate wrote
    servers       one client that reports for several people
    stores        where the service stores: SQLite, segments, PostgreSQL
    service       the service, its replicas, and each request with what became of it
    front         the service over HTTP, for Node and for the commands
    nightly       pull or fold, publish, watch and discover, by the commands
    ledger_check, publication_check, coverage_check     what must hold at the end, computed without the product's code

`python -m tests.system.year --seed 7 --days 60 --people 200` runs one.
"""
