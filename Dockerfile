# The image of `fondaco serve`: the binary and the C library, no shell, not root.
#
#   docker build -t fondaco .
#   docker run -p 8080:8080 -v ./fondaco.toml:/etc/fondaco/fondaco.toml:ro fondaco serve --help
#
# Builder and runtime are the same Debian release, so that the C library fits.

FROM rust:1.95-slim-bookworm AS build
WORKDIR /src

# Dependencies first: this layer is built anew only when the lock file or the manifest changes.
COPY Cargo.toml Cargo.lock ./
RUN mkdir -p src benches tests/it \
    && echo 'fn main() {}' | tee src/main.rs benches/calls.rs tests/it/main.rs > src/lib.rs \
    && cargo build --release --locked --bin fondaco

# The stubs are newer than the sources: without the touch they would count as built.
COPY src src
RUN touch src/lib.rs src/main.rs \
    && cargo build --release --locked --bin fondaco \
    && mkdir /data

FROM gcr.io/distroless/cc-debian12:nonroot
COPY --from=build /src/target/release/fondaco /usr/local/bin/fondaco
# State that is not configured elsewhere lands in ./fondaco-data: mount a volume here.
COPY --from=build --chown=65532:65532 /data /var/lib/fondaco
WORKDIR /var/lib/fondaco
USER 65532:65532
# 8080 is the public listener, 8081 the admin listener. Both bind loopback until configured.
EXPOSE 8080 8081
ENTRYPOINT ["/usr/local/bin/fondaco"]
CMD ["serve"]
