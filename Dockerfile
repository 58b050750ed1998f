# The image of lastseen: one static binary and the certificates of public authorities, nothing else.
#
#     docker build -t lastseen .
#
# The version is the tag of the commit that is checked out, or devel, with the commit: see deploy/version. Changes that
# are not committed do not show in it. A release, and a build without a repository, can say what it is:
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
# The modules and the compiled standard library are a layer of their own: they change less often than
# the code. So is the compiled code: a commit that leaves it as it was changes only the stamp.
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
      org.opencontainers.image.description="A presence service: who is here, and who was here recently" \
      org.opencontainers.image.licenses="MIT" \
      org.opencontainers.image.version="$VERSION" \
      org.opencontainers.image.revision="$REVISION"
# For rediss://
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
# Only /data is the user's, and a new volume there takes its owner over.
COPY --from=build --chown=65532:65532 /out/data /data
COPY --from=build /out/lastseen /lastseen
USER 65532:65532
# The default store is lastseen.db in here. It is no ENV: that would win over a configuration file.
WORKDIR /data
VOLUME /data
# The published port is the way in, so it listens on every address of the container. Therefore it starts only
# with keys or JWTs, or with LASTSEEN_AUTH=none.
ENV LASTSEEN_LISTEN=:8080
EXPOSE 8080
# Alive, not ready: a Redis that is away must not get the container replaced.
HEALTHCHECK --interval=5s --timeout=4s --start-period=30s --retries=3 CMD ["/lastseen", "health"]
ENTRYPOINT ["/lastseen"]
