-- Tenants and what belongs to them, operators, and the record of every change.
-- Times are seconds since the Unix epoch. What belongs to the deployment has the tenant '-'.
-- Names are compared byte by byte, so that pages have the same order everywhere.

create table revisions (
    tenant text collate "C" primary key,
    value bigint not null
);

create table tenants (
    name text collate "C" primary key,
    document text not null,
    revision bigint not null,
    created bigint not null,
    changed bigint not null
);

create table issuers (
    url text collate "C" primary key,
    document text not null,
    revision bigint not null,
    created bigint not null,
    changed bigint not null
);

create table claims (
    kind text collate "C" not null,
    value text collate "C" not null,
    tenant text collate "C" not null references tenants (name) on delete cascade,
    primary key (kind, value)
);

create index claims_tenant on claims (tenant);

create table backends (
    tenant text collate "C" not null references tenants (name) on delete cascade,
    name text collate "C" not null,
    place bigint not null,
    document text not null,
    revision bigint not null,
    created bigint not null,
    changed bigint not null,
    primary key (tenant, name),
    unique (tenant, place)
);

create table secrets (
    tenant text collate "C" not null references tenants (name) on delete cascade,
    name text collate "C" not null,
    sealed text not null,
    revision bigint not null,
    created bigint not null,
    changed bigint not null,
    primary key (tenant, name)
);

create table operators (
    id text collate "C" primary key,
    name text collate "C" not null unique,
    role text not null check (role in ('owner', 'operator', 'auditor')),
    tenant text collate "C" references tenants (name) on delete cascade,
    digest bytea not null unique,
    created bigint not null
);

create table audit (
    tenant text collate "C" not null,
    writer text collate "C" not null,
    number bigint not null,
    at bigint not null,
    actor text not null,
    action text not null,
    object text not null,
    was text,
    became text,
    previous bytea not null,
    hash bytea not null,
    primary key (tenant, writer, number)
);

create table answers (
    tenant text collate "C" not null,
    actor text collate "C" not null,
    key text collate "C" not null,
    mark bytea not null,
    status bigint not null,
    body text not null,
    revision bigint not null,
    at bigint not null,
    primary key (tenant, actor, key)
);

create table changes (
    seq bigint generated always as identity primary key,
    tenant text collate "C"
);

-- The second lock: a statement that forgets whose rows it means sees none. A session that never
-- named a tenant has null here, one whose transaction has ended has ''.

alter table backends enable row level security;
alter table backends force row level security;
create policy own on backends
    using (tenant = nullif(current_setting('fondaco.tenant', true), ''))
    with check (tenant = nullif(current_setting('fondaco.tenant', true), ''));
-- A process that starts to serve reads all of them, and only reads.
create policy everyone on backends for select
    using (current_setting('fondaco.tenant', true) = '*');

alter table secrets enable row level security;
alter table secrets force row level security;
create policy own on secrets
    using (tenant = nullif(current_setting('fondaco.tenant', true), ''))
    with check (tenant = nullif(current_setting('fondaco.tenant', true), ''));
create policy everyone on secrets for select
    using (current_setting('fondaco.tenant', true) = '*');

alter table audit enable row level security;
alter table audit force row level security;
create policy own on audit
    using (tenant = nullif(current_setting('fondaco.tenant', true), ''))
    with check (tenant = nullif(current_setting('fondaco.tenant', true), ''));

alter table answers enable row level security;
alter table answers force row level security;
create policy own on answers
    using (tenant = nullif(current_setting('fondaco.tenant', true), ''))
    with check (tenant = nullif(current_setting('fondaco.tenant', true), ''));
