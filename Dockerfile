# docker build -t sawlog . && docker run --rm -v "$PWD:/data:ro" sawlog verify /data
FROM python:3.11-slim AS build
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY src ./src
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

FROM python:3.11-slim
RUN useradd --create-home --uid 10001 sawlog
COPY constraints/dev.txt /tmp/constraints.txt
COPY --from=build /wheels /wheels
RUN pip install --no-cache-dir --constraint /tmp/constraints.txt "$(ls /wheels/sawlog-*.whl)[datastore,remote]" \
  && rm -r /wheels /tmp/constraints.txt
# Kernels are compiled here, once, for this image: containers start without compiling.
ENV NUMBA_CACHE_DIR=/opt/sawlog/kernels
RUN mkdir -p "$NUMBA_CACHE_DIR" && chown sawlog "$NUMBA_CACHE_DIR"
USER sawlog
# Numba uses a cache only where it may write, so that `docker run --user` finds these kernels, too.
RUN sawlog warm-up && chmod -R a+rwX "$NUMBA_CACHE_DIR"
WORKDIR /data
ENTRYPOINT ["sawlog"]
CMD ["--help"]
