"""A real Kafka broker on loopback, and the jars of Spark's Kafka source; fetched once, with Maven."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support import find_free_port

BROKER = "org.apache.kafka:kafka_2.13:4.2.0"
CONNECTOR = (
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.1",
    "org.apache.commons:commons-pool2:2.12.1",
)
CACHE = Path(__file__).parents[2] / ".cache" / "kafka-4.2.0"
POM = """<project><modelVersion>4.0.0</modelVersion>
<groupId>sawlog</groupId><artifactId>kafka</artifactId><version>1</version>
<dependencies><dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version></dependency></dependencies>
</project>"""
PROPERTIES = """process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs={logs}
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
"""


def fetch() -> None:
    """Broker and connector into the cache, unless they are there."""
    ready = CACHE / ".ready"
    if ready.exists():
        return
    CACHE.mkdir(parents=True, exist_ok=True)
    (CACHE / "pom.xml").write_text(POM.format(*BROKER.split(":")))
    maven = ["mvn", "--quiet", "--batch-mode"]
    broker, connector = CACHE / "broker", CACHE / "connector"
    subprocess.run([*maven, "dependency:copy-dependencies", f"-DoutputDirectory={broker}"], cwd=CACHE, check=True)
    for artifact in CONNECTOR:
        command = [*maven, "dependency:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={connector}"]
        subprocess.run(command, cwd=CACHE, check=True)
    ready.touch()


def connector_jars() -> str:
    """For `spark.jars`."""
    return ",".join(str(jar) for jar in sorted((CACHE / "connector").glob("*.jar")))


@contextmanager
def kafka(base: Path) -> Iterator[str]:
    """Start a broker; ended with the block.

    Yields:
        Its address.
    """
    fetch()
    port, controller = find_free_port(), find_free_port()
    properties = base / "kraft.properties"
    properties.write_text(PROPERTIES.format(port=port, controller=controller, logs=base / "logs"))
    java = ["java", "-Xmx512m", "-cp", f"{CACHE / 'broker'}/*"]
    tool = [*java, "kafka.tools.StorageTool"]
    name = subprocess.run([*tool, "random-uuid"], capture_output=True, text=True, check=True).stdout.split()[-1]
    subprocess.run([*tool, "format", "-t", name, "-c", str(properties)], capture_output=True, check=True)
    with (base / "broker.log").open("w") as log:
        process = subprocess.Popen([*java, "kafka.Kafka", str(properties)], stdout=log, stderr=log, cwd=base)
        try:
            wait_for(port, process)
            yield f"127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait(60)


def wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError("the Kafka broker has ended; see broker.log")
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.2)
    raise RuntimeError("the Kafka broker does not answer")
