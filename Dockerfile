# One static binary in an empty image. It runs as a number, needs nothing but /proc, and writes to /data alone (with an external NATS to nothing at all), so
# `docker run --read-only --cap-drop ALL` is fine; give it a tmpfs for the folder of server.admin.listen where that is not below /data.
# There is no shell and no other program in it. For exec actions that need some, take an image that has them and
# COPY --from=triggerd:<version> /triggerd /usr/local/bin/triggerd
FROM --platform=$BUILDPLATFORM golang:1.26.8-bookworm AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN --mount=type=cache,target=/go/pkg/mod go mod download
COPY . .
ARG TARGETOS
ARG TARGETARCH
ARG VERSION=devel
# Zone data is in the binary (packages configs and cron embed it); certificates are not.
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH go build -trimpath -buildvcs=false -ldflags "-s -w -X main.version=$VERSION" -o /out/triggerd ./cmd/triggerd
RUN mkdir -p /out/data /out/tmp

FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build --chmod=1777 /out/tmp /tmp
COPY --from=build --chown=65532:65532 /out/data /data
COPY --from=build /out/triggerd /triggerd
ARG VERSION=devel
LABEL org.opencontainers.image.title="triggerd" \
      org.opencontainers.image.description="Runs commands and calls on events, each exactly once per trigger" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="$VERSION"
USER 65532:65532
# The configuration is mounted here, a folder and not a file, so that a changed file is seen. It is the working directory so that
# `docker exec <container> /triggerd turns list` finds ./triggerd.yaml.
WORKDIR /etc/triggerd
# Where the embedded NATS stores everything unless the configuration says otherwise. Not used with an external NATS.
ENV STATE_DIRECTORY=/data
VOLUME /data
EXPOSE 8080 9464
# The daemon answers on its admin socket. Whether it is ready to serve is another question: GET /readyz.
HEALTHCHECK --interval=15s --timeout=5s --start-period=30s --retries=3 CMD ["/triggerd", "daemons", "list", "--config", "/etc/triggerd"]
ENTRYPOINT ["/triggerd"]
CMD ["serve", "--config", "/etc/triggerd", "--log-format", "json"]
