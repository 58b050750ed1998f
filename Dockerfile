# The image of lastseen: one static binary and the public CA certificates.
#
#     docker build -t lastseen .
#
# The version is the tag of the commit that is checked out, or devel, with the commit: see deploy/version. It does not
# show uncommitted changes. A release, and a build without a repository, can set the version:
#
#     docker build -t lastseen --build-arg VERSION=v1.2.3 --build-arg REVISION="$(git rev-parse HEAD)" .

FROM golang:1.26 AS source
WORKDIR /src
COPY . .
ARG VERSION=
ARG REVISION=
RUN if [ -n "$VERSION" ]; then echo "$VERSION $REVISION"; else sh deploy/version; fi >/stamp && rm -rf .git deploy

FROM golang:1.26 AS build
WORKDIR /src
# The modules and the compiled standard library have their own layer, because they change less often than the code.
# The compiled code has one, too: a commit that does not change it changes only the stamp.
COPY go.mod go.sum ./
RUN go mod download && CGO_ENABLED=0 go build -trimpath std
COPY --from=source /src ./
RUN CGO_ENABLED=0 go build -trimpath -buildvcs=false -o /dev/null ./cmd/lastseen
COPY --from=source /stamp /
RUN CGO_ENABLED=0 go build -trimpath -buildvcs=false \
      -ldflags "-s -w -X 'main.stamp=$(cat /stamp)'" -o /out/lastseen ./cmd/lastseen \
 && mkdir /out/data

FROM scratch
ARG VERSION=
ARG REVISION=
LABEL org.opencontainers.image.title="lastseen" \
      org.opencontainers.image.description="A presence service: tracks who is online and who was online recently" \
      org.opencontainers.image.licenses="MIT" \
      org.opencontainers.image.version="$VERSION" \
      org.opencontainers.image.revision="$REVISION"
# For rediss://
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
# The user owns only /data. A new volume there gets the same owner.
COPY --from=build --chown=65532:65532 /out/data /data
COPY --from=build /out/lastseen /lastseen
USER 65532:65532
# The default store is lastseen.db in this folder. It is not an ENV, which would override a configuration file.
WORKDIR /data
VOLUME /data
# For a published port, lastseen must listen on all addresses of the container. Therefore it starts only with keys or
# JWTs, or with LASTSEEN_AUTH=none.
ENV LASTSEEN_LISTEN=:8080
EXPOSE 8080
# Liveness, not readiness: an unavailable Redis must not cause the container to be replaced.
HEALTHCHECK --interval=5s --timeout=4s --start-period=30s --retries=3 CMD ["/lastseen", "health"]
ENTRYPOINT ["/lastseen"]
