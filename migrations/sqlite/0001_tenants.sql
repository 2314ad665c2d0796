-- Tenants and what belongs to them, operators, and the record of every change.
-- Times are seconds since the Unix epoch. What belongs to the deployment has the tenant '-'.

create table revisions (
    tenant text primary key,
    value integer not null
) strict, without rowid;

create table tenants (
    name text primary key,
    document text not null,
    revision integer not null,
    created integer not null,
    changed integer not null
) strict, without rowid;

create table issuers (
    url text primary key,
    document text not null,
    revision integer not null,
    created integer not null,
    changed integer not null
) strict, without rowid;

create table claims (
    kind text not null,
    value text not null,
    tenant text not null references tenants (name) on delete cascade,
    primary key (kind, value)
) strict, without rowid;

create index claims_tenant on claims (tenant);

create table backends (
    tenant text not null references tenants (name) on delete cascade,
    name text not null,
    place integer not null,
    document text not null,
    revision integer not null,
    created integer not null,
    changed integer not null,
    primary key (tenant, name),
    unique (tenant, place)
) strict, without rowid;

create table secrets (
    tenant text not null references tenants (name) on delete cascade,
    name text not null,
    sealed text not null,
    revision integer not null,
    created integer not null,
    changed integer not null,
    primary key (tenant, name)
) strict, without rowid;

create table operators (
    id text primary key,
    name text not null unique,
    role text not null check (role in ('owner', 'operator', 'auditor')),
    tenant text references tenants (name) on delete cascade,
    digest blob not null unique,
    created integer not null
) strict, without rowid;

create table audit (
    tenant text not null,
    writer text not null,
    number integer not null,
    at integer not null,
    actor text not null,
    action text not null,
    object text not null,
    was text,
    became text,
    previous blob not null,
    hash blob not null,
    primary key (tenant, writer, number)
) strict, without rowid;

create table answers (
    tenant text not null,
    actor text not null,
    key text not null,
    mark blob not null,
    status integer not null,
    body text not null,
    revision integer not null,
    at integer not null,
    primary key (tenant, actor, key)
) strict, without rowid;

create table changes (
    seq integer primary key autoincrement,
    tenant text
) strict;
