# docker build -t sawlog . && docker run --rm -v "$PWD:/data:ro" sawlog verify /data
FROM python:3.11-slim AS build
WORKDIR /src
COPY pyproject.toml hatch_build.py README.md LICENSE ./
COPY src ./src
# Without a C compiler, pip brings a linker for the library of kernels.
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

FROM python:3.11-slim
RUN useradd --create-home --uid 10001 sawlog
COPY constraints/dev.txt /tmp/constraints.txt
COPY --from=build /wheels /wheels
RUN pip install --no-cache-dir --constraint /tmp/constraints.txt "$(ls /wheels/sawlog-*.whl)[datastore,remote]" \
  && rm -r /wheels /tmp/constraints.txt
USER sawlog
WORKDIR /data
ENTRYPOINT ["sawlog"]
CMD ["--help"]
