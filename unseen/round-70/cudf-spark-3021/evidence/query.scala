val df = spark.read.parquet("/data/nds_100g_parquet/store_sales")
df.createOrReplaceTempView("df")
spark.time(spark.sql("""
select ss_customer_sk, avg(avg_price) as avg_price
from
(
 SELECT ss_customer_sk,
        avg(ss_sales_price) OVER (PARTITION BY ss_customer_sk order by ss_sold_date_sk
                                  ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) as avg_price
   FROM df
) group by ss_customer_sk order by 2 desc limit 10
""").show())
// GPU (rapids-4-spark 21.08, 2 executors x 1 T4):  Time taken: 361877 ms
// CPU, same cluster:                               Time taken:  30114 ms

spark.sql("select count(*), count(ss_customer_sk) from df").show()
// +---------+---------------------+
// | count(1)|count(ss_customer_sk)|
// +---------+---------------------+
// |287997024|            275043215|
// +---------+---------------------+
