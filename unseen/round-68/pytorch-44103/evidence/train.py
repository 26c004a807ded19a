model = nn.DataParallel(resnet50().cuda(), device_ids=[0, 1, 2, 3])
for iters in range(1, train_interval + 1):
    data, target = train_dataloader.next()          # DALI, already on the GPU
    output = model(data)
    loss = loss_function(output, target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    prec1, prec5 = accuracy(output, target, topk=(1, 5))
    Top1_err += 1 - prec1.item() / interval
    Top5_err += 1 - prec5.item() / interval
