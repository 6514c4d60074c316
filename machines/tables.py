"""Every table there is."""

from machines.binding import BINDING
from machines.exchange import DURABLE, EXCHANGE
from machines.job import JOB
from machines.output import OUTPUT
from machines.provisional import PROVISIONAL
from machines.write import WRITE

TABLES = (EXCHANGE, DURABLE, JOB, OUTPUT, WRITE, PROVISIONAL, BINDING)
